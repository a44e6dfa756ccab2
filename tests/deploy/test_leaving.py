"""A model that leaves: what a run writes is what it was judged by, under the names its owner knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import accord
from accord.engine.model_folder import file_names
from accord.errors import ConfigError, DataError, DivergedError, RunError
from support.frozen import FROZEN, Tower, tower
from support.leaving import CLASSES, SITES, TEST, finished, pictures, share_right

CNN = ("model.name=fedufo_cnn", "local.lr=0.02")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted((folder / "model").rglob("*")) if p.is_file()}


def test_a_network_with_a_name_is_made_again(tmp_path: Path) -> None:
    outcome = finished(tmp_path)
    model = accord.load(outcome.folder)
    assert not model.training
    assert model.classes == CLASSES
    assert share_right(model) == pytest.approx(outcome.summary["accuracy"])
    assert outcome.model is not None
    x = (torch.from_numpy(TEST[0]).float() / 255 - model.inputs.mean[0]) / model.inputs.std[0]
    torch.testing.assert_close(model(TEST[0]), outcome.model(x))
    torch.testing.assert_close(model.probabilities(TEST[0]), outcome.model(x).softmax(1).detach())
    assert load_file(outcome.folder / "model" / "model.safetensors").keys() == outcome.model.state_dict().keys()
    shutil.copytree(outcome.folder / "model", tmp_path / "elsewhere")
    assert accord.predict(tmp_path / "elsewhere", TEST[0]) == model.predict(TEST[0])


def test_an_own_network_with_frozen_parts_and_running_statistics(tmp_path: Path) -> None:
    given = tower()
    outcome = finished(tmp_path, model=given)
    kept = load_file(outcome.folder / "model" / "model.safetensors")
    names = Tower().state_dict()
    assert kept.keys() == names.keys(), "as its owner calls them"
    before = given.module.state_dict()
    for name in FROZEN:
        assert torch.equal(kept[name], before[name])
    assert not torch.equal(kept["norm.running_mean"], before["norm.running_mean"])
    for network in (Tower(), tower()):
        own = {name: value.clone() for name, value in network.state_dict().items()}
        model = accord.load(outcome.folder, network=network)
        assert share_right(model) == pytest.approx(outcome.summary["accuracy"])
        assert all(torch.equal(value, own[name]) for name, value in network.state_dict().items()), "a copy is filled"
    with pytest.raises(ConfigError, match=r"your own 'Tower'.*network=MyNetwork\(\)"):
        accord.load(outcome.folder)
    with pytest.raises(DataError, match=r"does not fit the network: 'bias' is missing in it"):
        accord.load(outcome.folder, network=nn.Linear(64, 3))
    with pytest.raises(ConfigError, match=r"torch\.nn\.Module"):
        accord.load(outcome.folder, network=Tower)  # type: ignore[arg-type]
    wider = Tower()
    wider.head = nn.Linear(6, 4)
    with pytest.raises(DataError, match=r"head\.(weight|bias)' is torch.float32 \(3"):
        accord.load(outcome.folder, network=wider)


@pytest.mark.parametrize(
    "sets",
    [
        ("algorithm.name=fedfusion", "algorithm.operator=conv", *CNN),
        ("algorithm.name=fedfusion", "algorithm.operator=multi", "algorithm.lambda0=0.3", *CNN),
        ("algorithm.name=fedfusion", "algorithm.operator=single", "algorithm.evaluate=same", *CNN),
        ("algorithm.name=fedrane", "algorithm.hops=2"),
        ("algorithm.name=fedrane", "algorithm.frozen_head=true", "algorithm.top_k=3"),
        ("algorithm.name=fedrane", "algorithm.attention=gat", "algorithm.heads=3"),
        ("algorithm.name=moon", "algorithm.classifier=projection", "algorithm.projection=8"),
        ("algorithm.name=spherefed",),
        ("algorithm.name=feddyn", "algorithm.report=average"),
    ],
)
def test_all_of_a_prediction_leaves(tmp_path: Path, sets: tuple[str, ...]) -> None:
    outcome = finished(tmp_path, *sets)
    assert outcome.model is not None
    model = accord.load(outcome.folder)
    assert share_right(model) == pytest.approx(outcome.summary["accuracy"])
    x = model.tensor(TEST[0])
    torch.testing.assert_close(model(TEST[0]), outcome.model(x))


def test_fusion_around_an_own_network(tmp_path: Path) -> None:
    outcome = finished(tmp_path, "algorithm.name=fedfusion", model=tower())
    assert outcome.model is not None
    kept = load_file(outcome.folder / "model" / "model.safetensors")
    assert Tower().state_dict().keys() < kept.keys()
    assert all(name.startswith("accord:") for name in kept.keys() - Tower().state_dict().keys())
    model = accord.load(outcome.folder, network=Tower())
    assert share_right(model) == pytest.approx(outcome.summary["accuracy"])


PERSONAL = ("apple", "ditto", "fedbabu", "fedbn", "fedmtl", "fedper", "fedrep", "fedrod", "fml", "pfedme", "local")


@pytest.mark.parametrize("method", PERSONAL)
def test_a_site_gets_the_model_it_was_judged_with(tmp_path: Path, method: str) -> None:
    own = tower() if method in ("fedbn", "ditto") else None
    slow = ("algorithm.lam=1.0", "local.lr=0.05") if method == "pfedme" else ()
    outcome = finished(tmp_path, f"algorithm.name={method}", *slow, model=own)
    network = Tower() if own else None
    judged = {row["site"]: row["personal_accuracy"] for row in outcome.sites()}
    assert set(judged) == set(SITES)
    for site in SITES:
        model = accord.load(outcome.folder, client=site, network=network)
        assert model.client == site
        assert share_right(model, site) == pytest.approx(judged[site])
    lyon, bern = (accord.load(outcome.folder, client=number, network=network) for number in (1, 0))
    assert (lyon.client, bern.client) == ("Lyon", "Bern"), "also by number"
    assert not torch.equal(lyon(TEST[0]), bern(TEST[0]))
    whole = outcome.model is not None
    assert (outcome.folder / "model" / "model.safetensors").exists() == whole
    if not whole:
        with pytest.raises(ConfigError, match=r"no model for all clients.*Clients: .*Lyon"):
            accord.load(outcome.folder)
    with pytest.raises(ConfigError, match=r"no model of the client 'Lion'.*Lyon"):
        accord.load(outcome.folder, client="Lion", network=network)


def test_only_what_is_personal_is_beside_the_shared(tmp_path: Path) -> None:
    outcome = finished(tmp_path, "algorithm.name=fedbn", model=tower())
    folder = outcome.folder / "model"
    common = load_file(folder / "shared.safetensors")
    assert set(common) == {*FROZEN, "still.num_batches_tracked"}
    for path in (folder / "clients").iterdir():
        assert not set(common) & set(load_file(path))
    names = {path.name for path in (folder / "clients").iterdir()}
    assert names == {"Bern.safetensors", "Lyon.safetensors", "Turin.safetensors", "St._Gallen_2-2.safetensors"}


def test_names_of_files_are_safe_and_distinct() -> None:
    assert file_names({0: "a", 1: "A", 2: "b"}) == {0: "a-0.safetensors", 1: "A-1.safetensors", 2: "b.safetensors"}
    assert file_names({0: "x-1", 1: "../x"}) == {0: "0.safetensors", 1: "1.safetensors"}
    assert file_names({0: "", 1: "..", 2: "Zürich"}) == {
        0: "client-0.safetensors", 1: "client-1.safetensors", 2: "Zürich.safetensors",
    }  # fmt: skip


def test_clients_models_can_be_left_out_and_it_is_said(tmp_path: Path) -> None:
    outcome = finished(tmp_path, "algorithm.name=ditto", "checkpoint.personal_mb=0")
    assert not (outcome.folder / "model" / "clients").exists()
    assert "**not** in this folder: 4 models would take" in (outcome.folder / "model" / "README.md").read_text()
    accord.load(outcome.folder)
    with pytest.raises(ConfigError, match="holds no client's own model"):
        accord.load(outcome.folder, client="Lyon")
    alone = finished(tmp_path, "algorithm.name=local", "checkpoint.personal_mb=0")
    assert "no model for all sites" in (alone.folder / "model" / "README.md").read_text()
    with pytest.raises(ConfigError, match="holds no model for all clients"):
        accord.load(alone.folder)


def test_models_do_not_depend_on_what_is_measured(tmp_path: Path) -> None:
    judged = finished(tmp_path / "a", "algorithm.name=fedrep")
    silent = finished(
        tmp_path / "b", "algorithm.name=fedrep", "evaluate.personal=false", "executor=processes", "workers=2"
    )
    clients = {name: data for name, data in files(judged.folder).items() if "clients" in name}
    assert len(clients) == 4
    assert clients == {name: data for name, data in files(silent.folder).items() if "clients" in name}


@pytest.mark.parametrize("every", [0, 1])
def test_a_run_killed_at_its_very_end_writes_the_same_bytes(tmp_path: Path, every: int) -> None:
    outcome = finished(tmp_path, "algorithm.name=ditto", f"checkpoint.every={every}")
    before = files(outcome.folder)
    assert {"model/model.json", "model/README.md", "model/clients/Lyon.safetensors"} <= before.keys()
    (outcome.folder / "summary.json").unlink()
    (outcome.folder / "model" / "model.json").write_text("torn")
    (outcome.folder / ".model.tmp").mkdir()
    (outcome.folder / ".model.tmp" / "model.json").write_text("torn")
    accord.resume(outcome.folder, data=pictures())
    assert files(outcome.folder) == before
    assert not (outcome.folder / ".model.tmp").exists()


def test_links_in_the_models_place_are_refused(tmp_path: Path) -> None:
    outcome = finished(tmp_path, "checkpoint.every=0")
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "mine").write_text("mine")
    (outcome.folder / "summary.json").unlink()
    shutil.rmtree(outcome.folder / "model")
    (outcome.folder / "model").symlink_to(treasure)
    with pytest.raises(RunError, match="symbolic link"):
        accord.resume(outcome.folder, data=pictures())
    assert [path.name for path in treasure.iterdir()] == ["mine"]


def test_a_diverged_run_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, final: Any) -> dict[str, Any]:
        return {"accuracy": float("nan")}

    monkeypatch.setattr("accord.measures.evaluator.Evaluator.end", broken)
    with pytest.raises(DivergedError, match="No model was written"):
        finished(tmp_path, "name=run")
    assert not (tmp_path / "run" / "model").exists()
    with pytest.raises(DataError, match="there is no model in"):
        accord.load(tmp_path / "run")


def test_the_card_says_what_it_is_about(tmp_path: Path) -> None:
    outcome = finished(tmp_path, "algorithm.name=ditto", "algorithm.lam=0.7", "local.lr=0.03")
    card = (outcome.folder / "model" / "README.md").read_text()
    for said in (
        "# ditto on pets", "Trained in a simulation", "60 training samples at 4 sites", "3 classes: cat, dog, owl",
        "- `algorithm.lam = 0.7`", "- `local.lr = 0.03`", "## Limits", "How it does elsewhere is not known",
        "| Lyon | 15 | 10 |", "accord.load(", "Lowest personal_accuracy: ",
    ):  # fmt: skip
        assert said in card, said
    assert str(tmp_path) not in card
    assert "executor" not in card
    row = next(line for line in card.splitlines() if line.startswith("| personal_accuracy |"))
    spread = outcome.summary["personal_accuracy"]
    assert (
        row
        == "| personal_accuracy | " + " | ".join(f"{spread[n]:.4g}" for n in ("mean", "worst", "best", "std")) + " |"
    )
    record = json.loads((outcome.folder / "model" / "model.json").read_text())
    assert record["classes"] == list(CLASSES)
    assert record["network"] == {
        "kind": "named", "name": "mlp", "settings": {"hidden": [6], "dropout": 0.0}, "input_shape": [1, 8, 8],
    }  # fmt: skip


def test_words_of_others_have_no_power_over_the_card(tmp_path: Path) -> None:
    x, y, _ = TEST
    evil = np.array(["a|b", "<script>x</script>", "`c`", "d\ne"])[np.arange(len(y)) % 4]
    data = accord.from_arrays(x, y, evil, classes=CLASSES, name="<b>\n# evil", test_fraction=0.25)
    outcome = finished(tmp_path, "algorithm.name=ditto", data=data)
    card = (outcome.folder / "model" / "README.md").read_text()
    assert "<script>" not in card
    assert "\n# evil" not in card
    assert accord.load(outcome.folder, client="<script>x</script>").predict(x[:2])
