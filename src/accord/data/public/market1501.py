"""Market-1501: people seen by six cameras."""

from __future__ import annotations

import re

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.identities import Sightings, by_name, found_root, search_dataset
from accord.data.public.registry import DATASETS, Height, Normalise, Width

FOLDERS = ("bounding_box_train", "query", "bounding_box_test")
NAME = re.compile(r"(-?\d+)_c(\d+)s\d+_")
JUNK = ("-1",)  # detections of nobody in particular; 0000, other people, stay among those searched


@DATASETS.add("market1501")
def market1501(places: Places, *, height: Height = 256, width: Width = 128, normalise: Normalise = True) -> Dataset:
    """People by six cameras, 751 + 750 identities, 32,668 pictures (Zheng et al., ICCV 2015); folders of your own."""
    source = "https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html"
    root = found_root(places, "market1501", ("Market-1501-v15.09.15", "market"), FOLDERS, source)
    parts = Sightings(*(by_name(root / folder, NAME, JUNK) for folder in FOLDERS))
    return search_dataset("market1501", parts, (height, width), normalise)
