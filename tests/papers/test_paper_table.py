"""Means, deviations, differences and orders, computed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accord.config import to_toml
from accord.errors import ConfigError, DataError
from accord.papers import words
from accord.papers.foreseen import foreseen
from accord.papers.keeping import record_of
from accord.papers.numbers import Number
from accord.papers.printed import NOTHING
from accord.papers.readings import filled
from accord.papers.records import Records, read_record
from accord.papers.reproduction import reproduce
from accord.papers.table import Table, order
from accord.papers.wanted import missing, wanted
from papers.conftest import Write, table, tiny


def test_mean_deviation_and_difference(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.5, 0.6, 0.7], seed=0)  # the last two: 65
    write("fedavg", [0.1, 0.2, 0.7, 0.68], seed=1)  # 69
    cell = table(tmp_path).cells["fedavg", "last"]
    assert cell.ours is not None
    assert cell.ours.mean == pytest.approx(67.0)
    assert cell.ours.std == pytest.approx(8**0.5)  # both are 2 from the mean, divided by n - 1
    assert cell.difference == pytest.approx(7.0)
    assert words.ours(table(tmp_path), cell, tiny().columns[0]) == "67.00 ± 2.83 (+7.00)"


def test_rounds_to_a_target_count_where_every_run_reached_it(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.5, 0.4, 0.6], seed=0)
    assert table(tmp_path).cells["fedavg", "to50"].ours.mean == 20  # type: ignore[union-attr]
    write("fedavg", [0.1, 0.1, 0.1, 0.1], seed=1)
    cell = table(tmp_path).cells["fedavg", "to50"]
    assert cell.ours is None
    assert words.ours(table(tmp_path), cell, tiny().columns[1]) == "not reached"


def test_the_order_of_methods(tmp_path: Path, write: Write) -> None:
    # The paper: scaffold 70, fedprox 61, fedavg 60. Here scaffold leads too, the other two have changed places.
    write("fedavg", [0.1, 0.1, 0.5, 0.5])
    write("fedprox", [0.1, 0.1, 0.4, 0.4])
    write("scaffold", [0.1, 0.1, 0.6, 0.6])
    found = table(tmp_path).order(tiny().columns[0])
    assert found is not None
    assert (found.compared, found.pairs, found.kept) == (3, 3, 2)
    assert found.best_printed
    assert found.best_ours
    assert found.lead_printed == pytest.approx(10.0)
    assert found.lead_ours == pytest.approx(10.0)
    said = words.orders(table(tmp_path))
    assert "2 of 3 pairs of methods in the paper's order" in said[0]
    assert "SCAFFOLD against FEDAVG: +10.00 in the paper, +10.00 here" in said[0]


def test_fewer_rounds_are_better() -> None:
    # As a table hands them over: the sign is turned, so that larger is better.
    found = order(40, {"own": -50, "base": -100}, {"own": {0: -80}, "base": {0: -70}}, "own", "base")
    assert (found.kept, found.pairs) == (0, 1)
    assert found.lead_printed == 50
    assert found.lead_ours == -10
    assert not found.best_ours


def test_methods_are_compared_over_the_seeds_both_have(tmp_path: Path, write: Write) -> None:
    # Seed 1 is easier by 20 points. Over both seeds FedAvg has 60, as much as SCAFFOLD on seed 0 alone.
    write("fedavg", [0.1, 0.1, 0.5, 0.5], seed=0)
    write("fedavg", [0.1, 0.1, 0.7, 0.7], seed=1)
    write("scaffold", [0.1, 0.1, 0.6, 0.6], seed=0)
    write("fedprox", [0.1, 0.1, 0.65, 0.65], seed=1)
    made = table(tmp_path)
    found = made.order(tiny().columns[0])
    assert found is not None
    assert found.lead_ours == pytest.approx(10.0)
    assert (found.pairs, found.kept) == (2, 1), "no seed in common: SCAFFOLD and FedProx; FedProx is behind on seed 1"
    assert found.best_ours
    assert filled("{scaffold.last} {fedavg.last} {scaffold.last - fedavg.last}", made) == "60.00 60.00 10.00"
    assert filled("{scaffold.last - fedprox.last}", made) == "-5.00", "of the numbers that are shown"


def test_runs_that_came_unequally_far_are_compared_where_both_were(tmp_path: Path, write: Write) -> None:
    write("scaffold", [0.3, 0.5])
    write("fedavg", [0.2, 0.45, 0.5, 0.7])
    made = table(tmp_path)
    assert filled("{scaffold.last} {fedavg.last}", made) == "40.00 60.00"
    assert filled("{scaffold.last - fedavg.last}", made) == "7.50", "0.4 less 0.325, the means until round 20"
    assert filled("{fedavg.last - scaffold.last}", made) == "-7.50"


def test_what_two_rows_differ_by_at_a_round_is_taken_over_the_seeds_both_have(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.3])
    write("fedavg", [0.5, 0.9], seed=1)
    write("scaffold", [0.6, 0.7], seed=1)
    write("fedprox", [0.4, 0.4], seed=2)
    made = table(tmp_path)
    assert filled("{fedavg.last.at 10}", made) == "30.0"
    assert filled("{scaffold.last.at 10 - fedavg.last.at 10}", made) == "10.0"
    assert filled("{scaffold.last.at 20 - fedavg.last.at 10}", made) == "40.0", "two rounds: of the numbers shown"
    assert filled("{fedprox.last.at 10 - fedavg.last.at 10}", made) == "10.0", "no common seed: of the numbers shown"
    assert "no number" in filled("{scaffold.last.at 15 - fedavg.last.at 15}", made)


def test_rows_that_did_not_run_as_long_are_shown_and_not_ordered(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.1, 0.5, 0.5])
    write("scaffold", [0.1, 0.1, 0.6, 0.6])
    write("fedprox", [0.9, 0.9], rounds_done=20, finished=False)
    made = table(tmp_path)
    assert made.order(tiny().columns[0]).compared == 2  # type: ignore[union-attr]
    assert "90.00 (+29.00) [20]" in words.tables(made)


def test_the_order_is_read_where_own_method_and_baseline_both_came(tmp_path: Path, write: Write) -> None:
    write("scaffold", [0.3, 0.4], finished=False)
    write("fedavg", [0.1, 0.2, 0.9, 0.9])
    write("fedprox", [0.2, 0.3, 0.1, 0.1])
    found = table(tmp_path).order(tiny().columns[0])
    assert found is not None
    assert (found.at, found.compared, found.kept) == (20, 3, 3)  # 35, 25 and 15, as the paper has them
    assert found.lead_ours == pytest.approx(20.0)


def test_seeds_that_stopped_early_are_not_in_the_mean_and_named(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.1, 0.5, 0.5], seed=0)
    write("fedavg", [0.9], seed=1, finished=False)
    made = table(tmp_path)
    assert made.cells["fedavg", "last"].ours.mean == pytest.approx(50.0)  # type: ignore[union-attr]
    assert "digits, seeds that did not get as far as others: FEDAVG seed 1 (round 10)" in words.gaps(made)


def test_diverged_runs_are_counted_and_not_averaged(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.2], broke_off="training diverged in round 21")
    column = tiny().columns[0]
    made = table(tmp_path)
    assert words.ours(made, made.cells["fedavg", "last"], column) == "1 diverged [20]"
    write("fedavg", [0.1, 0.1, 0.5, 0.5], seed=1)
    made = table(tmp_path)
    assert words.ours(made, made.cells["fedavg", "last"], column) == "50.00 (−10.00), 1 diverged"


def test_a_run_that_diverged_before_any_evaluation_is_a_result_without_numbers(tmp_path: Path, write: Write) -> None:
    write("scaffold", [], broke_off="training diverged in round 3 on client 2", finished=False)
    made = table(tmp_path)
    assert not missing(wanted(tiny(40), (0,), "full", ["scaffold"]), Records.of([tmp_path / "results"]))
    assert "| SCAFFOLD | 1 | 0 | 70.00 | 1 diverged [0] | 50 (2.0X) | 1 diverged [0] |" in words.tables(made, True)
    assert filled("{scaffold.last}, {scaffold.last.at 10}, {scaffold.last.to 50}", made).count("no number") == 3
    assert words.orders(made) == []
    # The others are put in order where they are, not at a round before all evaluations.
    write("fedavg", [0.1, 0.1, 0.5, 0.5])
    write("fedprox", [0.1, 0.1, 0.6, 0.6])
    write("scaffold", [0.1, 0.1, 0.7, 0.7], seed=1)
    made = table(tmp_path)
    assert "70.00 (+0.00), 1 diverged" in words.tables(made)
    assert made.order(tiny().columns[0]).at == 40  # type: ignore[union-attr]
    write("fedavg", [])
    with pytest.raises(DataError, match="evaluations are missing"):
        table(tmp_path)


def test_a_run_that_fails_after_its_last_round_counts_but_for_the_clients_own_models(
    tmp_path: Path, write: Write
) -> None:
    why = "training diverged in round 41 on client 2: weights not finite"
    write("fedavg", [0.1, 0.1, 0.5, 0.5], broke_off=why)
    cell = table(tmp_path).cells["fedavg", "last"]
    assert not cell.diverged
    assert cell.ours.mean == pytest.approx(50.0)  # type: ignore[union-attr]
    (record,) = cell.records
    own = [{**one, "personal": {"mean": 0.9}} for one in record.fields["evaluations"]]
    assert Number("personal").of({**record.fields, "evaluations": own}) is None
    assert Number("personal").of({**record.fields, "evaluations": own, "broke_off": ""}) == pytest.approx(90.0)


def test_seconds_a_round_are_those_of_the_device_at_any_round(tmp_path: Path, write: Write) -> None:
    path = write("fedavg", [0.1, 0.2, 0.3, 0.4])
    fields = json.loads(path.read_text()) | {"seconds": 80.0, "rounds_done": 40}
    seconds = Number("seconds a round", unit="plain")
    assert seconds.of(fields) == 2.0, "on the clock, where nothing else is known"
    path.write_text(json.dumps(fields | {"gpu_seconds": 20.0}))
    record = read_record(path)
    assert seconds.of(record.fields) == seconds.of(record.until(20).fields) == 0.5


def test_a_longer_run_is_read_at_the_round_that_is_asked_for(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.2, 0.3, 0.9])
    cell = table(tmp_path, rounds=30).cells["fedavg", "last"]
    assert cell.ours.mean == pytest.approx(25.0)  # type: ignore[union-attr]
    assert cell.rounds == 30


def test_a_record_belongs_to_the_row_its_settings_say(tmp_path: Path, write: Write) -> None:
    path = write("fedavg", [0.5], name="anything")
    settings = ["device=cuda", "precision=tf32", "data.name=mnist5k", "data.limit=60", "partition.name=iid"]
    settings += ["partition.clients=3", "local.steps=1", "local.batch_size=8", "evaluate.every=10", "rounds=40"]
    fields = {**json.loads(path.read_text()), "settings": settings}
    del fields["config"]
    path.write_text(json.dumps(fields))
    assert table(tmp_path).cells["fedavg", "last"].records
    path.write_text(json.dumps({**fields, "settings": [*settings, "local.lr=0.2"]}))
    assert not table(tmp_path).cells["fedavg", "last"].records


def test_of_two_records_the_furthest_counts_then_the_newest(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.2, 0.3, 0.4], name="a", versions={"accord": "0.10.0"})
    write("fedavg", [0.1, 0.2, 0.3, 0.8], name="b", versions={"accord": "0.9.0"})
    write("fedavg", [0.9, 0.9], name="c", versions={"accord": "1.0.0"})
    write("fedavg", [0.1, 0.2, 0.3, 0.4], name="d", versions={"accord": "0.10.0"}, summary={"steady_clients": {}})
    (record,) = table(tmp_path).cells["fedavg", "last"].records
    assert record.version == "0.10.0"
    assert "summary" in record.fields, "of equals the one that says more"


def test_records_with_settings_this_version_lacks_are_named(tmp_path: Path, write: Write) -> None:
    path = write("fedavg", [0.5], config={"local": {"magic": 1}})
    found = Records.of([tmp_path / "results"])
    assert not found.by_question
    assert "magic" in found.unreadable[path]
    (tmp_path / "results" / "broken.json").write_text("{}")
    with pytest.raises(DataError, match="no record of a run"):
        Records.of([tmp_path / "results"])


def test_what_is_missing_is_said(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.1, 0.5, 0.5])
    said = words.gaps(table(tmp_path))
    assert "digits, not run: FEDPROX, SCAFFOLD" in said
    assert "digits, cannot be run yet: a part: LATER" in said


def test_what_is_left_will_take_what_alike_runs_took(tmp_path: Path, write: Write) -> None:
    def said() -> str:
        records = Records.of([tmp_path / "results"])
        return foreseen(missing(wanted(tiny(40), (0,), "full"), records), records)

    write("fedavg", [0.1, 0.2, 0.3, 0.4], seed=1)
    assert said() == "", "nobody noted what the device gave it"
    write("fedavg", [0.1, 0.2, 0.3, 0.4], seed=1, gpu_seconds=400.0)  # 10 s a round
    write("fedavg", [0.1], seed=2, gpu_seconds=300.0)  # 30
    assert said() == "About 40 min of a GPU, by what runs in the same federation took.", "three rows of 40 rounds at 20"
    write("scaffold", [0.1, 0.2], seed=0, gpu_seconds=600.0)  # 30
    assert said().startswith("About 53 min of a GPU,"), "FedAvg at 20, FedProx at the median of all, 30, SCAFFOLD at 30"
    lines = reproduce(tiny(40), results=tmp_path / "results", runs=tmp_path, only_show=True).text
    assert f"seed 0. {said()}" in lines


def test_placeholders_of_a_text_are_computed(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.4, 0.5, 0.5])
    write("scaffold", [0.2, 0.5, 0.6, 0.6])
    made = table(tmp_path)
    text = "{scaffold.last} ({scaffold.last.paper}), {scaffold.last - fedavg.last} ahead; {fedavg.last.at 20}; "
    text += "{fedavg.last.to 50 / scaffold.last.to 50}; {fedprox.last}; {fedavg.last.rounds}"
    assert filled(text, made) == "60.00 (70.00), 10.00 ahead; 40.0; 1.5; (no number yet); 40"
    with pytest.raises(ConfigError, match="no number of its table"):
        filled("{fedavg.nothing}", made)


def test_placeholders_know_rows_with_dots_and_runs_that_diverged(tmp_path: Path, write: Write) -> None:
    write("scaffold", [0.2, 0.5], broke_off="training diverged in round 21 on client 0")
    made = table(tmp_path)
    names = {"scaffold": "fed-0.5", "fedavg": "fed-0"}
    rows = [replace(row, name=names.get(row.name, row.name)) for row in made.experiment.rows]
    cells = {(names.get(row, row), key): cell for (row, key), cell in made.cells.items()}
    dotted = replace(made, experiment=replace(made.experiment, rows=rows), cells=cells)
    assert filled("{fed-0.5.last.at 10}, {fed-0.5.last}, {fed-0.last.at 10}", dotted) == (
        "20.0, (no number yet), (no number yet)"
    )


def test_numbers_of_a_record() -> None:
    spread = {"best": 1.0, "worst": 0.2, "mean": 0.6, "std": 0.1}
    record = {
        "evaluations": [{"round": r, "accuracy": r / 10, "clients": spread} for r in (1, 2, 3, 4)],
        "rounds_done": 4,
        "seconds": 10.0,
        "summary": {
            "personal_accuracy": {"mean": 0.9},
            "bytes_down": 80_000_000,
            "asked": 10,
            "unseen": {"accuracy_after_epochs": [0.1, 0.7, 0.8005, 0.801]},
            "steady_clients": {"best": 0.736, "worst": 0.325, "mean": 0.5, "std": 0.0923, "evaluations": 10},
        },
    }
    assert Number("accuracy", "last 2").of(record) == pytest.approx(35.0)
    assert Number("accuracy", "top 3").of(record) == pytest.approx(30.0)
    assert Number("accuracy", "best", "share").of(record) == pytest.approx(0.4)
    assert Number("client worst").of(record) == pytest.approx(20.0)
    assert Number("client std", "best").of(record) == pytest.approx(10.0)
    assert Number("personal").of(record) == pytest.approx(90.0)
    steady = [Number(f"steady client {name}") for name in ("best", "worst", "std")]
    assert [one.of(record) for one in steady] == pytest.approx([73.6, 32.5, 9.23])
    assert [one.better for one in steady] == ["higher", "higher", "lower"]
    assert [one.of({**record, "summary": {}}) for one in steady] == [None] * 3, "records of earlier versions"
    assert Number("map").of(record) is None
    assert Number("parameters", unit="plain").of(record) == 2.0
    assert Number("seconds a round", unit="plain").of(record) == 2.5
    assert Number("newcomer epochs", unit="plain").of(record) == 2
    assert Number("rounds to 0.25", unit="rounds").of(record) == 3
    with pytest.raises(ConfigError, match="unknown"):
        Number("luck")
    with pytest.raises(ConfigError, match="over"):
        Number("accuracy", "first 3")


def test_the_spread_of_the_clients_means_by_hand(tmp_path: Path) -> None:
    config = replace(tiny().config(tiny().rows[0], tiny().places[0], 0, "full"), rounds=12)
    (tmp_path / "config.toml").write_text(to_toml(config))

    def kept(*each: Sequence[float | None] | None) -> Any:
        named = [{"each_client": list(some)} if some is not None else {} for some in each]
        told = [{"round": n + 1, "accuracy": 0.5, **some} for n, some in enumerate(named)]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
        record = record_of(tmp_path, {}, {})
        assert record is not None
        return record["summary"].get("steady_clients")

    # Two that swing against one another and one that stays: 0.5, 0.5 and 0.8. Before the last ten all are 0.
    swing = [(0.9, 0.1, 0.8, None), (0.1, 0.9, 0.8, None)]
    spread = {"best": 0.8, "worst": 0.5, "mean": 0.6, "std": 0.14142}  # squares 0.01, 0.01 and 0.04 from the mean
    assert kept((0.0, 0.0, 0.0, None), *(5 * swing)) == {**spread, "evaluations": 10}
    assert kept(*swing) == {**spread, "evaluations": 2}
    assert kept((None, None)) is kept(None, None) is None, "nobody has test data; too many clients to name"


def test_leads_over_a_baseline_by_hand(tmp_path: Path, write: Write) -> None:
    one = tiny(40)
    other = replace(one.places[0], name="noisy", change={"local": {"lr": 0.5}})
    columns = [one.columns[0], replace(one.columns[0], key="noisy", place=other)]
    rows = [replace(row, printed=dict.fromkeys(("last", "noisy"), NOTHING)) for row in one.rows]
    both = replace(one, columns=columns, rows=rows, own="fedavg")

    def in_both(row: str, plain: list[float], noisy: list[float] | None) -> None:
        path = write(row, plain)
        if noisy is not None:
            fields = json.loads(path.read_text())
            fields["config"]["local"] = {**fields["config"]["local"], "lr": 0.5}
            fields["evaluations"] = [{"round": 10 * n + 10, "accuracy": a} for n, a in enumerate(noisy)]
            path.with_name(f"{row}-noisy.json").write_text(json.dumps(fields))

    in_both("fedavg", [0.1, 0.5, 0.5, 0.5], [0.1, 0.4, 0.4, 0.4])
    in_both("scaffold", [0.1, 0.6, 0.6, 0.6], [0.1, 0.35, 0.35, 0.35])  # +10 and -5
    in_both("fedprox", [0.1, 0.55, 0.5, 0.52], [0.1, 0.9])  # +1; stopped at round 20, which is no lead
    text = words.leads(Table.of(both, Records.of([tmp_path / "results"]), (0,)))
    assert text.splitlines() == [
        "| method | mean lead over FEDAVG | ahead in | least lead |",
        "| --- | --- | --- | --- |",
        "| SCAFFOLD | +2.50 | 1 of 2 | −5.00 |",
        "| FEDPROX | +1.00 | 1 of 1 (1 not run to the end) | +1.00 |",
    ]
    assert words.leads(Table.of(one, Records.of([tmp_path / "results"]), (0,))) == "", "a paper's own method is its own"


def test_a_method_without_a_global_model_is_read_by_another_value(tmp_path: Path, write: Write) -> None:
    means = [0.2, 0.4, 0.6, 0.5]
    seen = [{"round": 10 * n + 10, "local_on_global": {"mean": mean}} for n, mean in enumerate(means)]
    write("fedprox", [], evaluations=seen)
    cells = table(tmp_path).cells
    assert cells["fedprox", "last"].ours is None
    local = replace(tiny(40).row("fedprox"), accuracy="local on global")
    one = replace(tiny(40), rows=[tiny(40).row("fedavg"), local, tiny(40).row("scaffold")])
    made = Table.of(one, Records.of([tmp_path / "results"]), (0,))
    assert made.cells["fedprox", "last"].ours.mean == pytest.approx(55.0)  # type: ignore[union-attr]
    assert made.cells["fedprox", "to50"].ours.mean == 30  # type: ignore[union-attr]
    assert filled("{fedprox.last.at 20} {fedprox.last.to 50}", made) == "40.0 30"


def test_a_federation_may_be_judged_by_its_clients_own_data_in_all_columns_but_those_that_say_otherwise(
    tmp_path: Path, write: Write
) -> None:
    own = [0.2, 0.4, 0.6, 0.9]
    seen = [
        {"round": 10 * n + 10, "accuracy": 0.1, "local_on_global": {"mean": 0.3}, "clients": {"mean": mean}}
        for n, mean in enumerate(own)
    ]
    write("fedavg", [], evaluations=seen)
    one = tiny(40)
    columns = [replace(column, accuracy="client mean") for column in one.columns]
    everybody = replace(columns[0], key="all", accuracy="accuracy")
    plain = replace(one.row("fedavg"), printed={**one.row("fedavg").printed, "all": NOTHING})
    rows = [plain, replace(plain, name="local", accuracy="local on global")]
    one = replace(one, columns=[*columns, everybody], rows=rows, own="local")
    made = Table.of(one, Records.of([tmp_path / "results"]), (0,))
    shown = {key: cell.ours.mean for key, cell in made.cells.items() if cell.ours is not None}
    assert shown == {
        ("fedavg", "last"): pytest.approx(75.0),
        ("fedavg", "to50"): 30,
        ("fedavg", "all"): pytest.approx(10.0),
        ("local", "last"): pytest.approx(30.0),
        ("local", "all"): pytest.approx(30.0),  # what a row says goes before what a column says
    }
    assert filled("{fedavg.last.at 20} {fedavg.last.to 60} {fedavg.all.at 20}", made) == "40.0 30 10.0"


def test_a_run_whose_clients_were_not_judged_does_not_answer_for_them(tmp_path: Path, write: Write) -> None:
    one = tiny(40)
    asking = replace(one, rows=[replace(row, config={**row.config, "evaluate": {"clients": True}}) for row in one.rows])
    path = write("fedavg", [0.1, 0.2, 0.3, 0.4])
    fields = json.loads(path.read_text())

    def left(clients: bool) -> int:
        path.write_text(json.dumps({**fields, "config": {**fields["config"], "evaluate": {"clients": clients}}}))
        return len(missing(wanted(asking, (0,), "full", ["fedavg"]), Records.of([tmp_path / "results"])))

    assert (left(clients=True), left(clients=False)) == (0, 1)
