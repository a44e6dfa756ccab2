"""The smallest pieces of the core, each on numbers worked out by hand."""

from __future__ import annotations

import hashlib
import math
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accord.core.allowance import Allowance
from accord.core.fields import EXACT, Field, Fields, field_of
from accord.core.given import _called, fixed_buffers, fixed_layers
from accord.core.keys import Key
from accord.core.methods import ALGORITHMS, is_personal, method
from accord.core.model import Model
from accord.core.task import gradient_of, gradients, stream
from accord.core.tensors import add, add_to, clone, normalised
from accord.core.types import Batch, ClientData, Facts, Replies, Result, weighted_mean, weighted_sum
from accord.core.view import View
from accord.core.whole import Exchanged, Whole, around, as_given, bare, fill, named_values
from accord.errors import DataError
from accord.problems import PROBLEMS
from support.federation import TinyRun, tiny_model

T = torch.tensor


def test_keys_are_seeds_of_address() -> None:
    """[seed, CRC-32 of the stream's name, round + 1, client + 1]; -1 is nobody's, and so becomes 0."""
    words = [3, zlib.crc32(b"drop"), 6, 8]
    expected = np.random.Generator(np.random.Philox(np.random.SeedSequence(words))).random(3).tolist()
    assert Key(3).at("drop", 5, 7).random(3).tolist() == expected
    first = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
    assert Key(3).number("drop", 5, 7) == first // 2
    nobody = np.random.SeedSequence([3, zlib.crc32(b"drop"), 0, 0]).generate_state(1, np.uint64)
    assert Key(3).number("drop") == int(nobody[0]) // 2
    for given, (round, client) in (((), (0, 0)), ((5,), (6, 0))):
        address = np.random.SeedSequence([3, zlib.crc32(b"drop"), round, client])
        drawn = np.random.Generator(np.random.Philox(address)).random(3).tolist()
        assert Key(3).at("drop", *given).random(3).tolist() == drawn
    whole = np.random.SeedSequence([3, zlib.crc32(b"order.train"), 1, 1]).generate_state(1, np.uint64)
    assert Key(3).number("order.train", 0, 0) == int(whole[0]) // 2, "all of a name with a dot counts"
    assert Key(3).client(4).seed == int(hashlib.sha256(b"accord client 3 4").hexdigest(), 16)


def test_inputs_side_by_side() -> None:
    fields = Fields((Field("a", (2, 1)), Field("word", (), 9), Field("b", (3,))))
    assert (fields.size, fields.names, fields["b"].size, fields["word"].size) == (6, ("a", "word", "b"), 3, 1)
    assert "word" in fields
    assert "c" not in fields
    values = {"b": T([[4.0, 5.0, 6.0]]), "a": T([[[1.0], [2.0]]]), "word": T([8])}
    rows = fields.packed(values)
    assert rows.tolist() == [[1.0, 2.0, 8.0, 4.0, 5.0, 6.0]]
    back = fields.unpacked(rows)
    assert {name: (value.dtype, value.tolist()) for name, value in back.items()} == {
        "a": (torch.float32, [[[1.0], [2.0]]]),
        "word": (torch.int64, [8]),
        "b": (torch.float32, [[4.0, 5.0, 6.0]]),
    }


def test_inputs_lie_side_by_side_in_the_precision_models_are_trained_in(float64: None) -> None:
    rows = Fields((Field("a", (1,)), Field("b", (1,), 3))).packed({"a": T([[0.1]]), "b": T([[2]])})
    assert rows.tolist() == [[0.1, 2.0]]
    assert rows.dtype == torch.float64


def test_whole_numbers_that_float32_holds() -> None:
    assert float(T(2**24, dtype=torch.int64).float()) != float(T(2**24 + 1, dtype=torch.int64).double())
    assert EXACT == 2**24
    assert field_of("w", T([[0, 2**24]])) == Field("w", (2,), 2**24 + 1)
    assert field_of("x", T([[0.5]])) == Field("x", (1,), 0)
    for wrong in (T([0, 2**24 + 1]), T([-1, 3])):
        with pytest.raises(DataError, match="must lie between 0 and 2\\^24 = 16,777,216"):
            field_of("w", wrong)


def test_who_may_be_asked() -> None:
    facts = Facts((1,), 2, np.array([3, 0, 1, 5]), frozenset({3}))
    assert facts.members == [0, 2]
    assert facts.sizes.tolist() == [3, 0, 1, 5]


def test_a_client_without_test_samples() -> None:
    empty = T([], dtype=torch.int64)
    full = {name: T([0]) for name in ClientData._fields}
    assert ClientData(**full).has_test
    assert not ClientData(**{**full, "test_y": empty}).has_test
    held = ClientData(**{**full, "y": T([2, 0, 2]), "test_y": T([1]), "num_classes": 4})  # type: ignore[arg-type]
    assert held.class_counts().tolist() == [1, 0, 2, 0]


def replies(*values: float, examples: tuple[int, ...]) -> Replies:
    results = tuple(
        Result({"model": {"w": T([value]), "n": T(int(value))}}, {}, {"seen": T(value)}) for value in values
    )
    return Replies(tuple(range(len(values))), results, torch.tensor(examples), {})


def test_answers_weighed_and_summed() -> None:
    found = replies(1.0, 5.0, examples=(1, 3))
    assert found.weights().tolist() == [0.25, 0.75]
    assert found.weights("uniform").tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="unknown weighting 'size'"):
        found.weights("size")
    assert found.mean("model")["w"].tolist() == [4.0]
    assert found.mean("model", "uniform")["w"].tolist() == [3.0]
    assert found.mean("model", T([2.0, 1.0]))["w"].tolist() == [7.0]
    assert int(found.mean("model")["n"]) == 5, "a counter: the largest"
    assert int(replies(5.0, 1.0, examples=(1, 1)).mean("model")["n"]) == 5
    assert found.metric("seen").tolist() == [1.0, 5.0]
    assert found.metric("seen").dtype == torch.float64
    assert found.stacked("model")["w"].tolist() == [[1.0], [5.0]]
    assert found.has("model")
    assert not found.has("other")
    assert not Replies((), (), torch.tensor([]), {}).has("model")
    assert len(found) == 2
    alone = replies(3.0, examples=(2,))
    assert alone.has("model")
    assert alone.measured("seen")
    assert alone.stacked("model")["w"].tolist() == [[3.0]]
    assert alone.mean("model")["w"].tolist() == [3.0]
    assert found.measured("seen")
    assert not found.measured("other")
    assert not Replies((), (), torch.tensor([]), {}).measured("seen")
    sums = weighted_sum(iter([{"b": T([1.0])}, {"b": T([2.0])}, {"b": T([4.0])}]), T([1.0, 10.0, 100.0]))
    assert sums["b"].tolist() == [421.0]
    counters = [{"n": T([3, 8]), "w": T([1.0])}, {"n": T([5, 2]), "w": T([1.0])}]
    assert weighted_sum(iter(counters), T([0.5, 0.5]))["n"].tolist() == [5, 8], "each for itself"
    assert weighted_sum(iter(counters[:1]), T([1.0]))["n"].tolist() == [3, 8]
    assert (counters[0]["n"].tolist(), counters[0]["w"].tolist()) == ([3, 8], [1.0]), "answers are only read"
    assert list(weighted_sum(iter([{"b": T([1.0]), "a": T([1.0])}]), T([1.0]))) == ["a", "b"], "names are sorted"
    assert Replies((), (), torch.tensor([]), {}).mean("model") == {}
    assert float(weighted_mean(T([1.0, 3.0, 100.0]), T([1.0, 1.0, 0.0]))) == 2.0


def test_sums_and_scales() -> None:
    assert add({"a": T([1.0])}, {"a": T([3.0])})["a"].tolist() == [4.0]
    assert add({"a": T([1.0])}, {"a": T([3.0])}, 0.5)["a"].tolist() == [2.5]
    totals = [T(1.0), T(2.0)]
    add_to(totals, [T(10.0), T(20.0)])
    assert [float(total) for total in totals] == [11.0, 22.0]

    def summed(total: Tensor) -> Tensor:
        total = total.clone()
        add_to([total], [T(1.0)])
        return total

    assert torch.vmap(summed)(T([1.0, 5.0])).tolist() == [2.0, 6.0]
    assert normalised(T([[3.0, 5.0]]), (1.0, 2.0), (2.0, 3.0)).tolist() == [[1.0, 1.0]]
    images = normalised(torch.full((1, 2, 1, 1), 5.0), (1.0, 3.0), (2.0, 1.0))
    assert images.flatten().tolist() == [2.0, 2.0]
    x = T([1.0])
    assert normalised(x, (), ()) is x


def test_copies_are_of_values_alone() -> None:
    leaf = T([1.0], requires_grad=True)
    (copy,) = clone({"w": leaf}).values()
    assert not copy.requires_grad
    copy.fill_(2.0)
    assert leaf.tolist() == [1.0]


def test_slopes_by_hand() -> None:
    """The slope of w^2 is 2 w, alone and for many at once; of what takes no part it is 0."""

    def square(tree: dict[str, Tensor]) -> Tensor:
        return (tree["w"] ** 2).sum()

    assert gradient_of(square, {"w": T([3.0])})["w"].tolist() == [6.0]
    many = torch.vmap(lambda w: gradient_of(square, {"w": w})["w"])(T([[3.0], [4.0]]))
    assert many.tolist() == [[6.0], [8.0]]
    leaves = {"model": {"w": T([3.0], requires_grad=True), "idle": T([1.0], requires_grad=True)}}
    found = gradients(square(leaves["model"]), leaves)["model"]
    assert (found["w"].tolist(), found["idle"].tolist()) == ([6.0], [0.0])


def test_the_stream_of_a_task() -> None:
    assert stream("judge", SimpleNamespace()) == "judge"  # type: ignore[arg-type]
    assert stream("judge", SimpleNamespace(hands_over=True)) == "train"  # type: ignore[arg-type]
    assert stream("judge", SimpleNamespace(hands_over=False)) == "judge"  # type: ignore[arg-type]


def test_a_method_registered_by_hand_is_not_personal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._all()))
    monkeypatch.setattr(ALGORITHMS, "_facts", dict(ALGORITHMS._facts))

    @ALGORITHMS.add("by_hand")
    def by_hand(setup: Any) -> Any:
        return setup

    assert not is_personal("by_hand")
    assert list(ALGORITHMS)[-1] == "by_hand", "a method of no family comes last"
    assert by_hand("as it is") == "as it is"
    assert is_personal("ditto")
    assert not is_personal("fedavg")


def test_methods_say_by_whom_they_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the personal family by clients' own models, others where they say so, and what they make knows it."""
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._all()))
    monkeypatch.setattr(ALGORITHMS, "_facts", dict(ALGORITHMS._facts))

    def registered(name: str, built: Any, *family: Any, **facts: Any) -> Any:
        def factory(setup: Any) -> Any:
            return built

        factory.__name__ = name
        return method(*family, **facts)(factory)

    plain = TinyRun("fedavg").algorithm
    for name, family, facts, personal in (
        ("of_the_family", "personal", {}, True),
        ("not_so", "personal", {"personal": False}, False),
        ("of_another", "client", {}, False),
        ("but_so", "client", {"personal": True}, True),
    ):
        for said in (False, True):  # whatever was built
            built = replace(plain, personal=said)  # type: ignore[type-var]
            made = registered(f"{name}_{said}", built, family, **facts)(None)
            assert (made.personal, is_personal(f"{name}_{said}")) == (personal, personal)
    other = object()
    assert registered("otherwise", other, "personal")(None) is other, "what is no Method is as it was made"
    registered("with_part", plain, "client", part=("weight", "rate"))
    assert ALGORITHMS.facts("with_part")["part"] == ("weight", "rate")
    assert ALGORITHMS.facts("otherwise")["part"] == ()


def test_memory_is_counted_while_a_network_is_made() -> None:
    class TooMuch(Exception):
        pass

    def refusal(taken: int) -> Exception:
        return TooMuch(str(taken))

    # 4 * 3 weights and 3 biases, of four bytes
    with Allowance(60, refusal) as allowance:
        nn.Linear(4, 3)
    assert allowance.taken == 60
    with pytest.raises(TooMuch, match="60"), Allowance(59, refusal):
        nn.Linear(4, 3)
    with Allowance(100, refusal) as allowance:
        torch.zeros(2, 3, dtype=torch.float64)
        torch.ones((2, 2))
        torch.empty(size=[2, 1])
        torch.rand(3)
        torch.arange(9)
    assert allowance.taken == 48 + 16 + 8 + 12


def test_layers_in_evaluation_mode_keep_their_statistics() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert fixed_buffers(network) == frozenset()
    network[2].eval()
    assert fixed_buffers(network) == {"2.running_mean", "2.running_var", "2.num_batches_tracked"}
    assert fixed_buffers(network.eval()) == frozenset(), "the whole was put into it: its owner had judged it"
    network[0].train()
    assert fixed_layers(network) == {"", "1", "2"}, "of a whole in which one part trains the others stay"
    network[0].eval()
    assert _called("0.fc", network) == "the submodule '0.fc'"
    assert _called("", network) == "the network Sequential"


def test_values_by_name_are_the_modules_own() -> None:
    """Whoever fills them fills the network."""
    layer = nn.Linear(2, 1)
    found = named_values(layer)
    assert found["weight"] is layer.weight
    assert found["bias"] is layer.bias
    fill(layer, {"weight": T([[3.0, 4.0]]), "bias": T([5.0])}, "a file")
    assert layer.weight.tolist() == [[3.0, 4.0]]
    with pytest.raises(DataError, match="a file does not fit the network: 'bias' is missing in it"):
        fill(layer, {"weight": T([[3.0, 4.0]])}, "a file")
    with pytest.raises(DataError, match="'a1' is which this network does not have"):  # the first by name
        fill(layer, {**found, **{f"a{place}": T([1.0]) for place in range(9, 0, -1)}}, "a file")
    with pytest.raises(DataError, match="'other' is which this network does not have"):
        fill(layer, {"weight": T([[3.0, 4.0]]), "bias": T([5.0]), "other": T([1.0])}, "a file")


class Swapped(Exchanged):
    kind = "swapped"

    def settings(self) -> dict[str, Any]:
        return {"c": 3}


class Inner(Whole):
    kind = "inner"

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.w = nn.Parameter(T([1.0]))

    def settings(self) -> dict[str, Any]:
        return {"a": 1}


class Outer(Inner):
    kind = "outer"

    def settings(self) -> dict[str, Any]:
        return {"b": 2}


class Wrapped(nn.Module):
    """A wrapper of ours around an owner's layers."""

    own_prefix = "module."

    def __init__(self, back: bool = False) -> None:
        super().__init__()
        self.module = nn.Sequential(Swapped(), nn.Linear(1, 1))
        if back:
            self.as_given = lambda: self.module


def test_what_is_put_around_a_network_from_the_inside_out() -> None:
    network = Wrapped()
    module = Outer(Inner(network))
    assert bare(module) is network
    assert bare(network) is network
    assert around(module) == [
        {"kind": "swapped", "at": "0", "c": 3},
        {"kind": "inner", "a": 1},
        {"kind": "outer", "b": 2},
    ]
    assert around(network) == [{"kind": "swapped", "at": "0", "c": 3}]
    found = named_values(module)
    assert list(found) == ["1.weight", "1.bias", "accord:w"]
    assert found["accord:w"] is module.w, "of one name the outer one's"
    assert named_values(Inner(network))["1.bias"] is network.module[1].bias
    back = Wrapped(back=True)
    assert as_given(back) is back.module
    assert as_given(network) is network


def test_losses_of_a_batch_are_weighted_by_class_where_that_is_asked_for() -> None:
    weighted = Model(tiny_model().network, problem=PROBLEMS["classification"].weighted((1.0, 7.0), 2))
    batch = Batch(T([[0.0]]), T([0, 1]), torch.ones(2), torch.arange(2), {})
    nothing: Any = None
    view = View(weighted, nothing, nothing, {}, nothing, batch)
    assert view.losses(torch.zeros(2, 2)).tolist() == pytest.approx([math.log(2), 7 * math.log(2)])


def test_values_that_do_not_fit_or_are_no_numbers_are_refused() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(2))
            self.register_buffer("mask", torch.zeros(2))
            self.register_buffer("n", torch.tensor(0))

    module = Masked()
    good = {"w": T([1.0, 2.0]), "mask": T([0.0, -torch.inf]), "n": T(3)}
    fill(module, good, "a file")
    assert {name: value.tolist() for name, value in named_values(module).items()} == {
        "w": [1.0, 2.0],
        "mask": [0.0, -torch.inf],  # as masks have it
        "n": 3,
    }
    for name, value, words in (
        ("w", T([1.0]), r"'w' is torch.float32 \(1,\), and the network wants torch.float32 \(2,\)"),
        ("w", T([1.0, 2.0], dtype=torch.float64), r"'w' is torch.float64 \(2,\)"),
        ("n", T(3.0), "'n' is torch.float32"),
        ("w", T([1.0, torch.nan]), "'w' holds values that are infinite or no numbers"),
        ("w", T([1.0, torch.inf]), "'w' holds values that are infinite or no numbers"),
        ("mask", T([torch.nan, 0.0]), "'mask' holds values that are infinite or no numbers"),
    ):
        with pytest.raises(DataError, match=words):
            fill(module, {**good, name: value}, "a file")
