"""From what `model.json` says to a network: one of ours by its name, or its owner's, and what was put around it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from accord.core.allowance import Allowance
from accord.deploy.facts import facts_of
from accord.errors import ConfigError, DataError
from accord.models import MODELS, adapt
from accord.models.around import AROUND
from accord.wire.model import dtype_of
from accord.wire.records import ANY_TEXT, Field, check, is_whole, shown

SPARE = 1 << 26  # bytes a network may take while it is made, beside what its values take
SHAPE = Field(lambda value: isinstance(value, list) and all(map(is_whole, value)), "whole numbers")
SETTINGS = Field(lambda value: isinstance(value, dict), "names with values")
TEXT_OR_NULL = Field(lambda value: value is None or isinstance(value, str), "text, or null")
NAMED = {"kind": ANY_TEXT, "name": ANY_TEXT, "settings": SETTINGS, "input_shape": SHAPE}
OWN = {
    "kind": ANY_TEXT,
    "class": ANY_TEXT,
    "head": TEXT_OR_NULL,
    "maps": TEXT_OR_NULL,
    "adapted": Field(lambda value: isinstance(value, bool), "true or false"),
    "layers": Field(lambda value: isinstance(value, list), "a list"),
}


def rebuilt(record: Mapping[str, Any], given: nn.Module | None, size: int) -> nn.Module:
    """A module with a place for every value, of which there are `size` bytes."""
    network = record["network"]
    kind = network.get("kind")
    if kind == "named":
        check(network, NAMED, "the network")
        module = _named(network, record, size)
        if given is not None:
            raise ConfigError(f"this model's network is {shown(network['name'])}, made by its name: leave out network=")
    elif kind == "own":
        check(network, OWN, "the network")
        module = _own(network, given, bool(record["around"]) or facts_of(record).fields is not None)
    else:
        raise DataError(f"the network is of the kind {shown(kind)}; known are 'named' and 'own'")
    for item in record["around"]:
        module = _put_around(module, item, size)
    return module.eval()


def _named(network: Mapping[str, Any], record: Mapping[str, Any], size: int) -> nn.Module:
    name = network["name"]
    if name not in MODELS:
        raise DataError(f"the network {shown(name)} is not known here: import the package that registers it first")
    shape, settings = tuple(network["input_shape"]), _settings(network["settings"])
    known = {"facts": facts_of(record)} if "facts" in inspect.signature(MODELS[name]).parameters else {}
    with _bounded(size, f"the network {shown(name)} with these settings"), torch.random.fork_rng(devices=[]):
        try:
            made: nn.Module = MODELS[name](shape, record["outputs"], **known, **settings)
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise DataError(f"the network {shown(name)} cannot be made with these settings: {error}") from error
    return made.to(dtype_of(record))


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """As a factory takes them: lists of JSON are tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _own(network: Mapping[str, Any], given: nn.Module | None, wrapped: bool) -> nn.Module:
    called = shown(network["class"])
    if given is None:
        raise ConfigError(
            f"this model's network is your own {called}, whose code is not in the folder: give one to put the values "
            "into, accord.load(folder, network=MyNetwork())"
        )
    if not isinstance(given, nn.Module):
        raise ConfigError(f"network must be a torch.nn.Module such as {called}, not a {type(given).__name__}")
    made = copy.deepcopy(given)
    if wrapped and network["adapted"] and not hasattr(made, "logits_and_features"):
        made = adapt(made, network["head"] or "", network["maps"])
    return made


def _put_around(module: nn.Module, item: Mapping[str, Any], size: int) -> nn.Module:
    """What a method put around the network, blank."""
    kind, settings = item.get("kind"), {name: value for name, value in item.items() if name != "kind"}
    if not isinstance(kind, str) or kind not in AROUND:
        raise DataError(f"around the network is {shown(kind)}; known are {', '.join(AROUND)}")
    prefix = getattr(module, "own_prefix", "")
    if "at" in settings:
        settings["at"] = f"{prefix}{settings['at']}"
    with _bounded(size, f"what is around the network ({kind})"):
        try:
            return AROUND[kind](module, **settings)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"what is around the network ({kind}) is set in a way it cannot be: {error}") from error


def _bounded(size: int, what: str) -> Allowance:
    most = 4 * size + SPARE
    return Allowance(most, lambda taken: DataError(f"{what} would take {taken:,} bytes, and its values are {size:,}"))
