"""What is written reads back the same, and the hash is of what matters."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from accord.config import AlgorithmConfig, LocalConfig, RunConfig, config_hash, from_dict, to_dict, to_toml
from accord.config.toml import literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), finite, text),
        lambda inner: st.lists(inner, max_size=3),
    )
)
def test_every_value_reads_back(value: Any) -> None:
    assert tomllib.loads(f"value = {literal(value)}")["value"] == value


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Any configuration that is allowed, over the fake registries."""
    small = st.floats(0, 0.99)
    momentum = draw(small)
    algorithm: dict[str, Any] = {"name": "fedavg"}
    if draw(st.booleans()):
        algorithm = {
            "name": "fedprox",
            "mu": draw(st.floats(0, 1e6)),
            "warmup": draw(st.one_of(st.just("none"), st.integers(1, 100))),
            "parts": draw(st.lists(text, max_size=3)),
        }
    return {
        "seed": draw(st.integers(0, 2**63 - 1)),
        "rounds": draw(st.integers(1, 10**6)),
        "name": draw(st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        "out": "x" + draw(text),
        "targets": draw(st.lists(st.floats(0, 1), max_size=4)),
        "algorithm": algorithm,
        "local": {
            "lr": draw(st.floats(1e-12, 1e3)),
            "momentum": momentum,
            "nesterov": momentum > 0 and draw(st.booleans()),
            "betas": draw(st.lists(small, min_size=2, max_size=2)),
        },
        "data": {"dir": draw(text), "download": draw(st.booleans())},
    }


@settings(deadline=None, max_examples=60)
@given(configurations())
def test_a_written_configuration_reads_back_the_same(given_values: dict[str, Any]) -> None:
    config = from_dict(given_values)
    again = from_dict(tomllib.loads(to_toml(config)))
    assert again == config
    assert config_hash(again) == config_hash(config)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_the_text_is_complete_and_explained() -> None:
    lines = to_toml(from_dict({"partition": {"name": "dirichlet"}})).splitlines()
    keys = [line for line in lines if "=" in line]
    assert all("  # " in line for line in keys)
    assert 'optimizer = "sgd"' in "\n".join(lines)
    assert "alpha = 0.5" in "\n".join(lines)  # the partition's own
    assert [line for line in lines if line.startswith("[")] == [
        *("[data]", "[partition]", "[transform]", "[model]", "[algorithm]"),
        *(
            "[local]",
            "[clients]",
            "[privacy]",
            "[compress]",
            "[pace]",
            "[attack]",
            "[evaluate]",
            "[checkpoint]",
            "[log]",
            "[federation]",
        ),
    ]


def test_the_hash_leaves_out_where_and_how_fast() -> None:
    base = from_dict({})
    for same in (
        {"out": "elsewhere", "name": "x", "executor": "sequential", "workers": 3, "device": "cpu"},
        {"checkpoint": {"every": 5}, "log": {"tensorboard": True}, "data": {"dir": "d", "download": False}},
    ):
        assert config_hash(from_dict(same)) == config_hash(base)
    for other in (
        *({"seed": 1}, {"rounds": 21}, {"local": {"lr": 0.06}}, {"data": {"limit": 9}}),
        *({"evaluate": {"every": 2}}, {"algorithm": {"name": "fedprox"}}, {"partition": {"alpha": 1}}),
    ):
        assert config_hash(from_dict(other)) != config_hash(base)


def test_the_hash_sees_values_not_how_they_were_written() -> None:
    assert config_hash(RunConfig()) == config_hash(from_dict({}))
    assert config_hash(RunConfig(local=LocalConfig(lr=1))) == config_hash(from_dict({"local": {"lr": 1.0}}))
    prox = replace(RunConfig(), algorithm=AlgorithmConfig("fedprox", {"mu": 0.01}))
    assert config_hash(prox) == config_hash(from_dict({"algorithm": {"name": "fedprox"}}))


def test_the_hash_never_changes_for_a_given_text() -> None:
    """Checkpoints store it: sha256 of the JSON with sorted keys, measures that are off left out, from scratch."""
    import hashlib

    values = to_dict(from_dict({}))
    off = (
        "partial_sums",
        "privacy",
        "compress",
        "pace",
        "attack",
    )  # what is as it is by default there asks for nothing
    for key in ("out", "name", "executor", "workers", "device", "log", "checkpoint", "federation", *off):
        del values[key]
    del values["data"]["dir"], values["data"]["download"], values["clients"]["over"]
    values["evaluate"] = {"batch_size": 512, "clients": True, "every": 1, "personal": "auto", "split": "test"}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert config_hash(RunConfig()) == hashlib.sha256(text.encode()).hexdigest()
