"""Fixed changes of a client's inputs (rotated, permuted, cropped images) and their test environments.

All of them move pixels without computing new values, so they are exact in any number type and on any device.

A transform is a factory below `@TRANSFORMS.add("name")`, in a file of this folder, and is found by itself. It returns
the change of each client's inputs and the environments the global model is tested in. Its keyword arguments are its
settings; its first line of documentation is what `accord list transforms` says:

    @TRANSFORMS.add("negative")
    def negative(dataset: Dataset, clients: int, seed: int) -> Change:
        '''Every second client sees its inputs negated.'''
        return Change(lambda client, index, x: -x if client % 2 else x, (Environment("test", unchanged),))

Outside this package the same decorator registers a transform once its module is imported.
"""

from accord.data.transforms.registry import TRANSFORMS, Change, make_transform
from accord.settings import import_all

__all__ = ["TRANSFORMS", "Change", "make_transform"]

import_all(__name__)
