"""Networks by name, and `adapt` for your own."""

from accord.core.model import Classifier
from accord.models import cct, cnn, mlp, resnet, vgg
from accord.models.adapt import Adapted, adapt
from accord.models.describe import Layer, count_parameters, layers, table
from accord.models.initialisation import INITIALISATIONS, initialise
from accord.models.network import Network
from accord.models.registry import MODELS

__all__ = [
    "INITIALISATIONS",
    "MODELS",
    "Adapted",
    "Classifier",
    "Layer",
    "Network",
    "adapt",
    "cct",
    "cnn",
    "count_parameters",
    "initialise",
    "layers",
    "mlp",
    "resnet",
    "table",
    "vgg",
]
