"""PACS: four domains of seven classes, as folders of images."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.folders import image_dataset, list_parts
from accord.data.public.registry import DATASETS, ImageSize, Normalise, SplitSeed, TestFraction
from accord.errors import DataError

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


@DATASETS.add("pacs")
def pacs(
    places: Places,
    *,
    image_size: ImageSize = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    normalise: Normalise = True,
) -> Dataset:
    """Seven classes in four domains, 9,991 images (Li et al., ICCV 2017, arXiv:1710.03077).

    Domains 0 to 3: art painting, cartoon, photo, sketch. There is no published test part: a share of each
    class of each domain is set aside, always the same for the same seed.
    """
    folders = places.candidates("pacs", "PACS")
    root = next((f for f in folders if all(os.path.isdir(f / d) for d in DOMAINS)), None)
    if root is None:
        raise DataError(
            "pacs: its images are not on this machine, and no public address offers them for download.\n"
            f"Looked in: {', '.join(map(str, folders))}\n"
            f"Get them by way of https://domaingeneralization.github.io and put them into {folders[0]} as "
            f"domain/class/image, with the domains {', '.join(DOMAINS)} and the classes "
            f"{', '.join(CLASSES)}"
        )
    parts = list_parts(root)
    # not strict: images straight below the domains have no domain, and every class is lacking
    present = {pair for listing in parts.values() for pair in zip(listing.domains, listing.classes, strict=False)}
    wrong = present ^ set(product(DOMAINS, CLASSES))
    if wrong:
        domain, name = min(wrong)
        raise DataError(
            f"{root} {'has' if (domain, name) in present else 'lacks'} {domain}/{name}; PACS has the domains "
            f"{', '.join(DOMAINS)}, each with {', '.join(CLASSES)}"
        )
    dataset = image_dataset("pacs", parts, image_size, test_fraction, split_seed, normalise)
    if image_size is not None:
        return replace(dataset, note=f"resized to {image_size} x {image_size}")
    return replace(dataset, note="32 x 32 copy" if dataset.train.x.shape[2:] == (32, 32) else "")
