"""Data sets by name: `load_dataset("mnist")`.

Files are looked for in `data_dir`, `$ACCORD_DATA` and `~/.cache/accord` (in a sub-folder called like the data
set, then in the folder itself) and otherwise downloaded into the first of these.

A data set is one file of this folder; it is found by itself. Such a file holds

- a `Collection`: the names of the files as published, their addresses and MD5 sums,
- the class names, and the mean and deviation of the train pixels,
- a loader `f(places, *, normalise: Normalise = True) -> Dataset` below `@DATASETS.add("name")`. Its first line of
  documentation is what `accord list datasets` says; its keyword arguments, annotated like `Normalise`, are the
  options of the data set, in a configuration (`data.normalise`) and in `load_dataset`.

    COLLECTION = Collection("digits", files=MNIST_FILES, remotes=mnist_remotes(("https://...",), ("<md5>", ...)))

    @DATASETS.add("digits")
    def digits(places: Places, *, normalise: Normalise = True) -> Dataset:
        '''Digits of house numbers, 60,000 + 10,000 images of 28 x 28 (authors, year).'''
        train, test = read_idx(COLLECTION, places, lowest=0, classes=10)
        return image_pools("digits", train, test, tuple("0123456789"), ((0.13,), (0.31,)), normalise)

Readers of the usual formats are in `accord.data.files`. Outside this package the same decorator registers a data
set once its module is imported.
"""

from accord.data.public.registry import DATASETS, load_dataset
from accord.settings import import_all

__all__ = ["DATASETS", "load_dataset"]

import_all(__name__)
