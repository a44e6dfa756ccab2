"""Personal methods print how good the clients' own models are, without being asked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

import accord
from accord.cli.running import report
from accord.core.methods import ALGORITHMS, is_personal
from accord.observe import RichProgress
from support.wards import run

PERSONAL = [name for name in ALGORITHMS if is_personal(name)]


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    return accord.adapt(layers, head="4")


@pytest.mark.parametrize("name", PERSONAL)
def test_line_summary_and_tables(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = io.StringIO()
    progress = RichProgress(Console(file=output, width=60))
    outcome = run(tmp_path, f"algorithm.name={name}", "local.lr=0.05", model=network(), observers=[progress])
    report(outcome, quiet=False)
    shown, summary, rows = capsys.readouterr().out, outcome.summary, outcome.sites()
    last = outcome.metrics[-1]["personal"]["mean"]
    assert f"personal {last:.4f}" in output.getvalue()
    assert summary["judged_by"] == "personal_accuracy"
    mean = summary["personal_accuracy"]["mean"]
    assert sum(row["personal_accuracy"] for row in rows) / len(rows) == pytest.approx(mean)
    lines = [line.split("│") for line in shown.splitlines() if "│" in line]
    assert any(line[1].strip() == "personal %" and line[2].strip() == f"{100 * mean:.2f}" for line in lines)
    assert "personal %" in next(line for line in shown.splitlines() if "samples" in line), "the table of sites"
    for row in rows:
        assert any(row["site"] in line[1] and f"{100 * row['personal_accuracy']:.2f}" in line[-2] for line in lines)
    assert "Worst site: " in shown or "All 4 sites" in shown
    assert (outcome.folder / "curves.png").is_file()


def test_there_are_some() -> None:
    assert {"apple", "ditto", "fedper", "fedrep", "fedbn", "pfedme"} <= set(PERSONAL)


def test_without_clients_the_end_says_how_to_have_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(run(tmp_path, "evaluate.clients=false"), quiet=False)
    assert "No table of sites, as nothing was measured at the clients: --set evaluate.clients=true does it." in (
        capsys.readouterr().out
    )
