"""One client's visit, step by step on numbers worked out by hand, and what a task and a method say of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accord.aggregate import EMA, Mean
from accord.aggregate.robust import Median
from accord.algorithms.apple import Rates
from accord.core.algorithm import Method
from accord.core.disclosure import ANYTHING, GRAVEST, Disclosure, declared, disclosures, kind_of
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.optim import OPTIMIZERS, SGD, Adam
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.sums import averaged_trees, reasons_for_each
from accord.core.task import LocalTraining, Part
from accord.core.types import Batch, ClientData, Job, Replies, Result, World
from accord.core.view import View
from accord.errors import ConfigError
from accord.models import adapt
from accord.parts.losses import SampleLoss
from accord.parts.phases import Gated
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup

T = torch.tensor
BODY, HEAD = "module.0.weight", "module.1.weight"


def network() -> Model:
    """x -> a x -> (b1 a x, b2 a x), all 1."""
    layers = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    for weight in layers.parameters():
        nn.init.ones_(weight)
    return Model(adapt(layers, head="1", example=torch.zeros(1, 1)))


@dataclass(frozen=True)
class Toward(Part):
    """Half the squared distance of all three weights from 3: the slope is w - 3."""

    called: list[str] = field(default_factory=list)

    def memory(self, job: Job) -> Any:
        return {"diary": {"visits": T(0)}}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        return {"toward.draw": rng.random((steps, batch))}

    def begin(self, model: Model, job: Job) -> Any:
        return {"began": job.info["lr"]}

    def trainable(self, job: Job) -> Any:
        return {"extra": job.shared["extra"]}

    def batch(self, job: Job, corner: Any, batch: Batch) -> Batch:
        self.called.append("batch")
        return batch._replace(weight=batch.weight * T([1.0, 1.0, 0.0]))

    def before(self, model: Model, job: Job, carry: Any, batch: Batch) -> None:
        self.called.append(f"before {float(batch.weight.sum()):g}")

    def loss(self, view: View) -> Any:
        self.called.append("loss")
        far = sum((0.5 * (p - 3) ** 2).sum() for p in view.params["model"].values())
        return view.whole(far + 2.0 * view.params["extra"]["e"].sum())

    def grad(self, job: Job, carry: Any, grads: Any) -> Any:
        self.called.append("grad")
        return grads

    def after(self, model: Model, job: Job, carry: Any, batch: Batch) -> None:
        self.called.append(f"after {float(carry['train']['model'][HEAD][0]):g}")

    def finish(self, model: Model, job: Job, carry: Any) -> Any:
        return {"extra": carry["train"]["extra"]}, {"diary": {"visits": job.memory["diary"]["visits"] + 1}}

    def discloses(self) -> Any:
        return {"extra": Disclosure.MEAN}


def job_of(task: LocalTraining, tested: bool = False, memory: Any = None) -> Job:
    params, buffers = task.model.init()
    shared = {"model": params, "buffers": buffers, "extra": {"e": T([5.0])}}
    info = {"lr": T(0.5), "round": T(0), "client": T(0), "examples": T(3), "steps": T(2)}
    x, y = T([[1.0], [-1.0]]), T([1, 1])
    data = ClientData(x, y, x if tested else x[:0], y if tested else y[:0], 2)
    job = Job(shared, {}, {}, info, data)
    return job._replace(memory=task.first_memory(job) if memory is None else memory)


def visit(task: LocalTraining, job: Job, steps: int = 2) -> Result:
    carry = task.begin(job)
    for _ in range(steps):
        batch = Batch(torch.zeros(3, 1), T([0, 1, 0]), torch.ones(3), torch.arange(3), {})
        carry = task.step(job, carry, batch)
    return task.finish(job, carry)


def test_two_steps() -> None:
    """Rate 1/2 towards 3 from 1: 2, then 2.5. The losses 3 * 2 + 10 and 3 * 0.5 + 8, each of two samples."""
    part = Toward()
    task = LocalTraining(network(), (part,))
    job = job_of(task)
    result = visit(task, job)
    assert result.reply["model"][BODY].tolist() == [[2.5]]
    assert result.reply["model"][HEAD].tolist() == [[2.5], [2.5]]
    assert result.reply["extra"]["e"].tolist() == [3.0]  # 5 - 2 * 0.5 * 2
    assert list(result.reply) == ["buffers", "extra", "model"]
    assert {name: t.tolist() for name, t in result.memory["diary"].items()} == {"visits": 1}
    assert set(result.memory) == {"diary"}
    assert {name: float(t) for name, t in result.metrics.items()} == {"loss": 2 * 16.0 + 2 * 9.5, "seen": 4, "steps": 2}
    assert all(t.dtype == torch.float64 for t in result.metrics.values())
    step = ["batch", "before 2", "loss", "grad"]
    assert part.called == [*step, "after 2", *step, "after 2.5"]
    assert job.shared["model"][HEAD].tolist() == [[1.0], [1.0]], "what was received is only read"
    assert job.shared["extra"]["e"].tolist() == [5.0]
    draws = task.noise(np.random.default_rng(3), 2, 4)
    assert draws["toward.draw"].tolist() == np.random.default_rng(3).random((2, 4)).tolist()


def test_what_is_frozen_stays_and_what_is_clipped_is_clipped_tree_by_tree() -> None:
    task = LocalTraining(network(), (Toward(),), frozen=frozenset({BODY}))
    reply = visit(task, job_of(task)).reply
    assert (reply["model"][BODY].tolist(), reply["model"][HEAD].tolist()) == ([[1.0]], [[2.5], [2.5]])
    # what is frozen takes part as it was received: 7 is 4 away from 3, and 8 is added to the first step's 4 and 10
    job = job_of(task)
    received = {**job.shared["model"], BODY: T([[7.0]])}
    job = job._replace(shared={**job.shared, "model": received})
    result = visit(task, job, steps=1)
    assert float(result.metrics["loss"]) == 2 * (8.0 + 4.0 + 10.0)
    assert result.reply["model"][BODY].tolist() == [[7.0]]

    @dataclass(frozen=True)
    class Namesake(Toward):
        def trainable(self, job: Job) -> Any:
            return {"extra": {**job.shared["extra"], BODY: T([1.0])}}

    named = LocalTraining(network(), (Namesake(),), frozen=frozenset({BODY}))
    assert set(named.begin(job_of(named))["active"]["extra"]) == {"e", BODY}, "names are frozen in the model alone"
    # slopes (-2, -2, -2) of length sqrt(12), and 2 of length 2, each to length 1
    task = LocalTraining(network(), (Toward(),), clip=1.0)
    reply = visit(task, job_of(task), steps=1).reply
    assert reply["model"][HEAD].flatten().tolist() == pytest.approx([1 + 0.5 / 3**0.5] * 2)
    assert reply["extra"]["e"].tolist() == pytest.approx([4.5])


def test_what_is_personal_is_kept_and_comes_back() -> None:
    task = LocalTraining(network(), (Toward(),), personal=frozenset({HEAD}))
    job = job_of(task)
    assert torch.equal(job.memory["personal"][HEAD], job.shared["model"][HEAD])
    assert set(job.memory["personal"]) == {HEAD}
    result = visit(task, job)
    assert set(result.reply["model"]) == {BODY}
    assert result.memory["personal"][HEAD].tolist() == [[2.5], [2.5]]
    again = visit(task, job._replace(memory=result.memory), steps=1)
    assert again.memory["personal"][HEAD].tolist() == [[2.75], [2.75]]
    assert again.reply["model"][BODY].tolist() == [[2.0]], "the body begins as received"
    # a name the server does not send is the network's own
    unsent = job._replace(shared={**job.shared, "model": {BODY: job.shared["model"][BODY]}})
    assert task.first_memory(unsent)["personal"][HEAD].tolist() == [[1.0], [1.0]]


def test_a_kept_optimizer_goes_on() -> None:
    """Momentum 1/2, slopes -2: v = -2 and then -1 + (w - 3)."""
    task = LocalTraining(network(), (Toward(),), SGD(0.5), keeps_optimizer=True)
    job = job_of(task)
    names = {f"model.velocity.{BODY}", f"model.velocity.{HEAD}", "extra.velocity.e"}
    assert set(job.memory["optimizer"]) == names
    first = visit(task, job, steps=1)
    assert first.memory["optimizer"][f"model.velocity.{BODY}"].tolist() == [[-2.0]]
    second = visit(task, job._replace(memory=first.memory), steps=1)  # from 1 again: v = 0.5 * -2 - 2 = -3
    assert second.reply["model"][BODY].tolist() == [[2.5]]
    assert second.memory["optimizer"]["extra.velocity.e"].tolist() == [3.0]
    still = replace(task, frozen=frozenset({BODY}))
    assert set(job_of(still).memory["optimizer"]) == names - {f"model.velocity.{BODY}"}, "what is frozen has no state"

    @dataclass(frozen=True)
    class Own(Toward):
        def trainable(self, job: Job) -> Any:
            return {"extra": job.shared["extra"], "mine": {"m": job.memory["diary"]["visits"] + T([2.0, 4.0])}}

    tree = LocalTraining(network(), (Own(),), SGD(0.5), keeps_optimizer=True)
    begun = job_of(tree).memory["optimizer"]
    assert begun.keys() - names == {"mine.velocity.m"}
    assert begun["mine.velocity.m"].tolist() == [0.0, 0.0], "of a tree that the client remembers from now on"
    fresh = replace(task, keeps_optimizer=False)
    assert "optimizer" not in job_of(fresh).memory
    assert visit(fresh, job_of(fresh, memory=first.memory), steps=1).reply["model"][BODY].tolist() == [[2.0]]
    # another task was the client's first: it brings no state
    assert visit(task, job_of(task, memory={"diary": {"visits": T(0)}}), steps=1).reply["model"][BODY].tolist() == [
        [2.0]
    ]


def test_a_client_is_judged_before_the_first_step_and_after_the_last() -> None:
    """(b1 a x, b2 a x) with labels 1, 1 and x = 1, -1: both logits are equal, and the first class is said, until the
    head's second weight is the larger: then x = 1 is right."""

    @dataclass(frozen=True)
    class Tilt(Toward):
        def loss(self, view: View) -> Any:
            return view.whole(-view.params["model"][HEAD][1].sum() + 0 * view.params["extra"]["e"].sum())

    @dataclass(frozen=True)
    class Own(Part):
        def judged_before(self, model: Model, job: Job, carry: Any) -> Any:
            return {BODY: T([[1.0]]), HEAD: T([[0.0], [0.0]])}, {}

        def judged(self, model: Model, job: Job, carry: Any) -> Any:
            return {BODY: T([[-1.0]]), HEAD: T([[5.0], [-5.0]])}, {}

    task = LocalTraining(network(), (Tilt(),))
    metrics = visit(task, job_of(task, tested=True)).metrics
    assert {n: float(metrics[n]) for n in metrics if n.startswith("personal")} == {
        "personal_before": 0.0,
        "personal_correct": 1.0,
        "personal_examples": 2.0,
    }
    assert not any(name.startswith("personal") for name in visit(task, job_of(task)).metrics)
    own = LocalTraining(network(), (Tilt(), Own()), hands_over=True)
    result = visit(own, job_of(own, tested=True))
    assert (float(result.metrics["personal_before"]), float(result.metrics["personal_correct"])) == (0.0, 1.0)
    assert result.reply["model"][HEAD].tolist() == [[5.0], [-5.0]]
    assert (result.memory, set(result.reply)) == ({}, {"model", "buffers"})


def test_a_model_is_judged_as_it_is_used_and_not_changed_by_it() -> None:
    task = LocalTraining(normed(), (SampleLoss(),))
    job = job_of(task, tested=True)
    carry = task.begin(job)
    result = task.finish(job, carry)
    assert int(result.reply["buffers"]["module.1.num_batches_tracked"]) == 0, "nothing was trained"
    logits = task.model.reference(job.shared["model"], job.shared["buffers"], job.data.test_x).logits
    right = float((logits.argmax(1) == job.data.test_y).sum())
    assert float(result.metrics["personal_before"]) == float(result.metrics["personal_correct"]) == right


def test_parts_close_before_they_answer() -> None:
    @dataclass(frozen=True)
    class Closing(Toward):
        def close(self, model: Model, job: Job, carry: Any) -> None:
            carry["train"]["extra"]["e"].fill_(-1.0)

    task = LocalTraining(network(), (Closing(),))
    assert visit(task, job_of(task)).reply["extra"]["e"].tolist() == [-1.0]


def test_only_one_part_runs_the_model() -> None:
    @dataclass(frozen=True)
    class Runs(Part):
        def forward(self, model: Any, job: Any, carry: Any, params: Any, batch: Any) -> Any:
            out = model.train(params["model"], carry["buffers"], batch.x)
            return out._replace(logits=out.logits + T([10.0, 0.0]))

    @dataclass(frozen=True)
    class Also(Runs):
        pass

    with pytest.raises(ConfigError, match="the parts Runs and Also both run the model"):
        LocalTraining(network(), (SampleLoss(), Runs(), Also()))
    task = LocalTraining(network(), (SampleLoss(), Runs()))
    job = job_of(task)
    carry = task.begin(job)
    batch = Batch(torch.zeros(2, 1), T([0, 1]), torch.ones(2), torch.arange(2), {})
    loss, total, seen = task.objective(job, carry, carry["active"], batch)
    assert float(loss) == pytest.approx((np.log1p(np.exp(-10)) + np.log1p(np.exp(10))) / 2)
    assert (float(total), float(seen)) == (pytest.approx(2 * float(loss)), 2.0)


def test_who_comes_later_begins_with_what_the_server_has_by_then() -> None:
    """Personal names begin as received, not as the network was made; buffers too."""
    model = normed()
    names = frozenset({"module.2.bias", "module.1.running_mean"})
    task = LocalTraining(model, (SampleLoss(),), personal=names)
    job = job_of(task)
    moved = {tree: {name: t + 4 for name, t in job.shared[tree].items()} for tree in ("model", "buffers")}
    kept = task.first_memory(job._replace(shared={**job.shared, **moved}))["personal"]
    assert set(kept) == names
    assert torch.equal(kept["module.2.bias"], moved["model"]["module.2.bias"])
    assert kept["module.1.running_mean"].tolist() == [4.0, 4.0]


def test_running_statistics_that_stay_with_a_client_are_its_own_at_its_next_visit() -> None:
    """Momentum 1/10 over a batch of zeros: the first layer's bias is what is seen, and a tenth of it remains."""
    model = normed()
    statistics = frozenset(model.buffer_names)
    task = LocalTraining(model, (SampleLoss(),), SGD(), frozen=frozenset(model.body_names), personal=statistics)
    job = job_of(task)
    bias = job.shared["model"]["module.0.bias"]
    first = visit(task, job, steps=1)
    assert first.reply["buffers"] == {}
    assert set(first.memory["personal"]) == statistics
    assert torch.allclose(first.memory["personal"]["module.1.running_mean"], 0.1 * bias)
    assert float(job.shared["buffers"]["module.1.running_mean"].abs().sum()) == 0, "what was received is only read"
    theirs = {name: torch.full_like(t, 7) for name, t in job.shared["buffers"].items()}
    again = visit(task, job._replace(memory=first.memory, shared={**job.shared, "buffers": theirs}), steps=1)
    assert torch.allclose(again.memory["personal"]["module.1.running_mean"], 0.9 * 0.1 * bias + 0.1 * bias)
    assert int(again.memory["personal"]["module.1.num_batches_tracked"]) == 2
    assert torch.allclose(first.memory["personal"]["module.1.running_mean"], 0.1 * bias), "nor is the memory changed"
    others = replace(task, personal=frozenset())
    sent = visit(others, job_of(others)._replace(shared={**job.shared, "buffers": theirs}), steps=1).reply["buffers"]
    assert torch.allclose(sent["module.1.running_mean"], 0.9 * 7 + 0.1 * bias)


def test_names_are_sorted_whoever_brought_them() -> None:
    """Sums run in the order of names, so that it must not matter what the server sends and what a client has."""
    task = LocalTraining(network(), (Toward(),), personal=frozenset({BODY}))
    job = job_of(task)
    unsent = job._replace(shared={**job.shared, "model": {HEAD: job.shared["model"][HEAD]}})
    assert list(task.first_memory(unsent)) == ["diary", "personal"]
    assert list(task.begin(unsent)["train"]["model"]) == [BODY, HEAD]
    model = normed()
    kept = "module.1.num_batches_tracked"
    other = LocalTraining(model, (SampleLoss(),), personal=frozenset({kept}))
    job = job_of(other)
    rest = {name: t for name, t in job.shared["buffers"].items() if name != kept}
    buffers = other.begin(job._replace(shared={**job.shared, "buffers": rest}))["buffers"]
    assert list(buffers) == [kept, "module.1.running_mean", "module.1.running_var"]


def test_a_model_that_is_handed_over_is_whole() -> None:
    """What is personal is in it, as it was trained; parts send nothing beside it."""
    task = LocalTraining(network(), (Toward(),), personal=frozenset({HEAD}), hands_over=True)
    mine = {"personal": {HEAD: T([[5.0], [5.0]])}, "diary": {"visits": T(3)}}
    result = visit(task, job_of(task, memory=mine), steps=1)
    assert (set(result.reply), result.memory) == ({"model", "buffers"}, {})
    assert result.reply["model"][HEAD].tolist() == [[4.0], [4.0]]  # 5 - 0.5 * 2
    assert result.reply["model"][BODY].tolist() == [[2.0]]


@dataclass(frozen=True)
class First(Part):
    """Notes what it sees; makes gradients ten times as long; keeps a model of its own."""

    called: list[Any] = field(default_factory=list)

    def before(self, model: Model, job: Job, carry: Any, batch: Batch) -> None:
        self.called.append(("first", float(batch.weight.sum())))

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        return {"first.draw": rng.random(2)}

    def memory(self, job: Job) -> Any:
        return {"first": {"n": T(1)}}

    def grad(self, job: Job, carry: Any, grads: Any) -> Any:
        return {**grads, "model": {name: 10 * g for name, g in grads["model"].items()}}

    def finish(self, model: Model, job: Job, carry: Any) -> Any:
        return {"model": {BODY: T([[70.0]])}, "note": {"n": T(1)}}, {"first": {"n": T(2)}, "both": {"n": T(1)}}

    def judged(self, model: Model, job: Job, carry: Any) -> Any:
        return {BODY: T([[1.0]]), HEAD: T([[1.0], [0.0]])}, {}


@dataclass(frozen=True)
class Second(First):
    """Halves the batch's weights; adds one to every gradient."""

    def batch(self, job: Job, corner: Any, batch: Batch) -> Batch:
        return batch._replace(weight=0.5 * batch.weight)

    def before(self, model: Model, job: Job, carry: Any, batch: Batch) -> None:
        self.called.append(("second", float(batch.weight.sum())))

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        return {"second.draw": rng.random(2)}

    def memory(self, job: Job) -> Any:
        return {"second": {"n": T(1)}}

    def loss(self, view: View) -> Any:
        return view.whole(sum((0.5 * (p - 3) ** 2).sum() for p in view.params["model"].values()))

    def grad(self, job: Job, carry: Any, grads: Any) -> Any:
        return {**grads, "model": {name: g + 1 for name, g in grads["model"].items()}}

    def finish(self, model: Model, job: Job, carry: Any) -> Any:
        return {"note": {"n": T(2)}}, {"second": {"n": T(3)}, "both": {"n": T(4)}}

    def judged(self, model: Model, job: Job, carry: Any) -> Any:
        return {BODY: T([[1.0]]), HEAD: T([[0.0], [1.0]])}, {}


def test_parts_side_by_side_see_what_those_before_them_made() -> None:
    first, second = First(), Second()
    task = LocalTraining(network(), (first, second))
    job = job_of(task, tested=True)
    assert {name: int(tree["n"]) for name, tree in job.memory.items()} == {"first": 1, "second": 1}
    result = visit(task, job, steps=1)
    # all change the batch before anybody looks at it; three samples of half their weight
    assert (first.called, second.called) == ([("first", 1.5)], [("second", 1.5)])
    # slopes -2, ten times that, and one more: 1 + 0.5 * 19
    assert result.reply["model"][BODY].tolist() == [[70.0]], "a part may send another model in the trained one's place"
    assert int(result.reply["note"]["n"]) == 2, "of two the later"
    assert {name: int(tree["n"]) for name, tree in result.memory.items()} == {"both": 4, "first": 2, "second": 3}
    assert float(result.metrics["loss"]) == 1.5 * 6.0
    # x = 1 and -1 with the label 1: by the last part's model x = 1 is right, by the first's -1
    handed = visit(replace(task, hands_over=True), job, steps=1)
    assert handed.reply["model"][HEAD].tolist() == [[0.0], [1.0]], "the last that keeps one says which"
    draws = task.noise(np.random.default_rng(3), 1, 3)
    expected = np.random.default_rng(3).random(4).tolist()
    assert [*draws["first.draw"], *draws["second.draw"]] == expected, "one stream, in the order of the parts"


def test_what_parts_make_of_gradients_is_clipped_and_then_stepped_along() -> None:
    """Slopes (-2, -2, -2) become (-19, -19, -19), and by the limit 3^(1/2) these are (-1, -1, -1)."""

    @dataclass(frozen=True)
    class Plain(Second):
        def finish(self, model: Model, job: Job, carry: Any) -> Any:
            return {}, {}

    @dataclass(frozen=True)
    class Tenfold(First):
        def finish(self, model: Model, job: Job, carry: Any) -> Any:
            return {}, {}

    for clip, ends in ((0.0, 1 + 0.5 * 19), (3**0.5, 1.5)):
        task = LocalTraining(network(), (Tenfold(), Plain()), clip=clip)
        reply = visit(task, job_of(task), steps=1).reply["model"]
        assert reply[BODY].flatten().tolist() == pytest.approx([ends])
        assert reply[HEAD].flatten().tolist() == pytest.approx([ends, ends])
    frozen = LocalTraining(network(), (Tenfold(), Toward()), clip=1.0, frozen=frozenset({BODY, HEAD}))
    assert visit(frozen, job_of(frozen), steps=1).reply["extra"]["e"].tolist() == [4.5], "there is nothing else to clip"


# what is said of what leaves --------------------------------------------------------------------------------------
def normed() -> Model:
    layers = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    return Model(adapt(layers, head="2", example=torch.zeros(2, 1)))


def test_kinds_from_harmless_to_grave() -> None:
    order = ["score", "update", "statistic", "mean", "sample"]
    assert [kind.word for kind in sorted(Disclosure)] == order
    assert GRAVEST is Disclosure.SAMPLE
    assert kind_of({"model": Disclosure.UPDATE}, "model") is Disclosure.UPDATE
    assert kind_of({"model": Disclosure.UPDATE}, "other") is Disclosure.SAMPLE
    silent: Any = object()
    assert declared(silent) == {ANYTHING: Disclosure.SAMPLE}


def test_what_a_training_task_sends() -> None:
    plain, batched = network(), normed()
    update, statistic = Disclosure.UPDATE, Disclosure.STATISTIC
    assert LocalTraining(plain, (SampleLoss(),)).discloses() == {"model": update}, "there are no buffers"
    assert LocalTraining(plain, (Toward(),)).discloses() == {"model": update, "extra": Disclosure.MEAN}
    task = LocalTraining(batched, (Toward(),))
    assert task.discloses() == {"model": update, "buffers": statistic, "extra": Disclosure.MEAN}
    everything, statistics = frozenset(batched.init()[0]), frozenset(batched.init()[1])
    assert "buffers" not in replace(task, personal=statistics).discloses()
    assert "model" not in replace(task, personal=everything).discloses()
    some = frozenset(sorted(everything)[:-1])
    assert replace(task, personal=some).discloses()["model"] is update
    handing = replace(task, personal=statistics | everything, hands_over=True)
    assert handing.discloses() == {"model": update, "buffers": statistic}


def test_what_a_method_sends() -> None:
    told = disclosures(TinyRun("fedavg").algorithm)
    assert told == {"train": {"model": Disclosure.UPDATE}, "evaluate": {"score": Disclosure.SCORE}}
    assert disclosures(TinyRun("centralized").algorithm) == {"pooling": {"samples": Disclosure.SAMPLE}}


def method(*parts: Part, kind: Any = Method, **rules: Any) -> Any:
    setup = tiny_setup(tiny_data(), tiny_model())
    return setup.method(setup.local(SampleLoss(), *parts), {"model": Mean(), "buffers": Mean(), **rules}, kind=kind)


def test_who_needs_each_answer_by_itself() -> None:
    @dataclass(frozen=True)
    class Sums(Part):
        needs_each = ""

        def update(self, state: Any, replies: Any, world: Any) -> Any:
            return {}

    @dataclass(frozen=True)
    class Silent(Part):
        def update(self, state: Any, replies: Any, world: Any) -> Any:
            return {}

    @dataclass(frozen=True)
    class Folding(Method):
        def fold(self, state: Any, world: Any, replies: Any) -> Any:
            return state

    @dataclass(frozen=True)
    class Starting(Method):
        @property
        def needs_each(self) -> str:
            return ""

        def start(self, state: Any, world: Any, exchange: Any) -> Any:
            return state

    unsaid = "which does not say that sums are enough for it"
    assert reasons_for_each(method()) == []
    assert averaged_trees(method()) == {"model": "examples", "buffers": "examples"}
    assert averaged_trees(method(model=Mean("uniform"))) == {"model": "uniform", "buffers": "examples"}
    assert reasons_for_each(method(Sums())) == []
    assert averaged_trees(method(Sums())) == {}, "its part reads the answers"
    assert reasons_for_each(method(Silent())) == [f"runs Silent, {unsaid}"]
    assert averaged_trees(method(Silent())) == {}
    assert reasons_for_each(method(kind=Folding)) == [f"runs Folding, {unsaid}"]
    assert reasons_for_each(method(kind=Starting)) == []
    assert averaged_trees(method(kind=Starting)) == {}
    enough: Any = type("Enough", (), {"needs_each": "", "state": lambda *_: {}})()
    assert reasons_for_each(method(model=enough)) == []
    assert averaged_trees(method(model=enough)) == {}, "sums are enough for it, and it does not say that means are"
    median = "takes the median of the clients' values"
    assert reasons_for_each(method(model=Median(), buffers=Median())) == [median], "said once"
    assert reasons_for_each(method(Silent(), model=EMA(0.5, Median()))) == [median, f"runs Silent, {unsaid}"]
    assert averaged_trees(method(model=Median())) == {}
    pooling = replace(method(), pools_data=True)
    assert (reasons_for_each(pooling), averaged_trees(pooling)) == (["gathers all samples"], {})
    other: Any = type("Other", (), {"pools_data": False})()
    assert (reasons_for_each(other), averaged_trees(other)) == ([f"runs Other, {unsaid}"], {})


def test_a_part_that_says_nothing() -> None:
    part = Part()
    assert (part.stacks, part.conflicts, part.problems, part.mixes) == (True, frozenset(), ("classification",), False)
    assert part.needs_each is None
    assert (part.name, part.couples, part.has_own("loss"), SampleLoss().has_own("loss")) == ("Part", False, False, True)
    nothing: Any = None
    assert (
        part.state(nothing, nothing) == part.send({}) == part.update({}, nothing, nothing) == part.memory(nothing) == {}
    )
    assert (
        part.begin(nothing, nothing) == part.trainable(nothing) == part.noise(nothing, 1, 1) == part.discloses() == {}
    )
    assert part.finish(nothing, nothing, {}) == ({}, {})
    assert part.judged(nothing, nothing, {}) is part.loss(nothing) is None
    marked: Any = object()
    assert part.batch(nothing, {}, marked) is part.grad(nothing, {}, marked) is marked


# a method ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Counting(Part):
    """A count the server keeps; each round adds the number of answers."""

    needs_each = ""

    def state(self, model: Model, world: World) -> Any:
        return {"count": {"n": T([0.0])}}

    def send(self, state: Any) -> Any:
        return {"count": state["count"]}

    def update(self, state: Any, replies: Any, world: Any) -> Any:
        return {"count": {"n": state["count"]["n"] + len(replies)}}


def test_rules_and_parts_fold_each_on_the_state_before_the_round() -> None:
    @dataclass(frozen=True)
    class Loud(Mean):
        def state(self, tree: str, value: Any) -> Any:
            return {f"{tree}.kept": value}

        def __call__(self, state: Any, tree: str, replies: Any) -> Any:
            return {**super().__call__(state, tree, replies), f"{tree}.kept": state[tree]}

        def report(self, state: Any, tree: str) -> dict[str, float]:
            return {f"{tree} kept": float(len(state[f"{tree}.kept"]))}

    task = LocalTraining(network(), (SampleLoss(), Counting()))
    one = Method(task, {"model": Loud(), "buffers": Mean()}, Everybody(), Rate)
    world = World(0, [0, 1], np.array([1, 3]), Key(0))
    state = one.init(world)
    assert list(state) == ["buffers", "count", "model", "model.kept"], "names are sorted"
    assert list(one.message(state)) == ["buffers", "count", "model"]
    assert set(one.judged(state)) == {"model", "buffers"}
    asked: list[Any] = []

    def exchange(name: str, clients: Any, shared: Any, private: Any = None) -> Replies:
        asked.append((name, list(clients), set(shared)))
        results = tuple(
            Result({"model": {BODY: T([[w]]), HEAD: T([[w], [2 * w]])}, "buffers": {}}, {}, {}) for w in (2.0, 6.0)
        )
        return Replies((0, 1), results, T([1, 3]), {})

    new, replies = one.round(state, world, exchange)
    assert asked == [("train", [1, 0], {"buffers", "count", "model"})]
    assert len(replies) == 2
    assert new["model"][BODY].tolist() == [[5.0]]
    assert new["model"][HEAD].tolist() == [[5.0], [10.0]]
    assert new["model.kept"][BODY].tolist() == [[1.0]]
    assert new["count"]["n"].tolist() == [2.0]
    assert state["model"][BODY].tolist() == [[1.0]]
    assert one.metrics(new) == {"model kept": 2.0}
    x = T([[2.0]])
    predictor = one.predictor(new)
    assert predictor is not None
    assert predictor(x).logits.tolist() == [[50.0, 100.0]]
    assert one.export(new)(x).tolist() == [[50.0, 100.0]]  # type: ignore[misc]
    # a client's own: what it sent, what it kept, and the server's for the rest
    result = Result({"model": {BODY: T([[2.0]])}, "buffers": {}, "count": {"n": T([9.0])}}, {}, {})
    assert one.local_predictor(new, result)(x).logits.tolist() == [[20.0, 40.0]]
    keeping = result._replace(memory={"personal": {HEAD: T([[1.0], [0.0]])}})
    assert one.local_predictor(new, keeping)(x).logits.tolist() == [[4.0, 0.0]]
    own = one.with_own(new, keeping)
    assert own["count"]["n"].tolist() == [9.0]
    silent = one.with_own(new, result._replace(reply={"model": {}, "buffers": {}}))
    assert all(silent[tree][name] is t for tree in ("count", "model") for name, t in new[tree].items())
    assert new["model"][BODY].tolist() == [[5.0]]
    assert set(one.tasks) == {"train", "evaluate"}
    assert (one.readings(new), one.judges_together, one.needs_each) == ({}, False, None)
    assert (one.personal, one.pools_data, one.has_global_model, one.extra_tasks) == (False, False, True, {})

    @dataclass(frozen=True)
    class Otherwise(Method):
        def predictor(self, state: Any) -> Any:
            return lambda x: x

    assert Otherwise(task, one.aggregate, Everybody(), Rate).export(new) is None, "no module computes that"
    headless = replace(one, has_global_model=False)
    assert set(headless.tasks) == {"train"}
    assert headless.predictor(new) is headless.export(new) is None


def test_parts_and_rules_are_shown_the_state_before_the_round() -> None:
    @dataclass(frozen=True)
    class Remembering(Part):
        def state(self, model: Model, world: World) -> Any:
            return {"was": {"w": T([[0.0]])}}

        def update(self, state: Any, replies: Any, world: Any) -> Any:
            return {"was": {"w": state["model"][BODY].clone()}}

    @dataclass(frozen=True)
    class Beside(Mean):
        def __call__(self, state: Any, tree: str, replies: Any) -> Any:
            return {tree: state["buffers"], "seen": {"w": state["model"][BODY].clone()}}

        def report(self, state: Any, tree: str) -> dict[str, float]:
            return {f"of {tree}": 1.0}

    @dataclass(frozen=True)
    class Loud(Mean):
        def report(self, state: Any, tree: str) -> dict[str, float]:
            return {f"of {tree}": 2.0}

    task = LocalTraining(network(), (SampleLoss(), Remembering()))
    one = Method(task, {"model": Loud(), "buffers": Beside()}, Everybody(), Rate)
    world = World(0, [0], np.array([1]), Key(0))
    state = one.init(world)
    sent = Result({"model": {BODY: T([[8.0]]), HEAD: T([[1.0], [1.0]])}, "buffers": {}}, {}, {})
    new = one.fold(state, world, Replies((0,), (sent,), T([1]), {}))
    assert new["model"][BODY].tolist() == [[8.0]]
    assert (new["was"]["w"].tolist(), new["seen"]["w"].tolist()) == ([[1.0]], [[1.0]])
    assert list(new) == ["buffers", "model", "seen", "was"], "names are sorted"
    assert one.metrics(new) == {"of model": 2.0, "of buffers": 1.0}


def test_a_rule_is_given_the_tree_it_is_for_and_those_of_parts() -> None:
    @dataclass(frozen=True)
    class Counted(Mean):
        def state(self, tree: str, value: Any) -> Any:
            return {f"{tree}.names": {name: T(0) for name in value}}

    task = LocalTraining(normed(), (SampleLoss(), Counting()))
    rules = {tree: Counted() for tree in ("model", "buffers", "count")}
    state = Method(task, rules, Everybody(), Rate).init(World(0, [0], np.array([1]), Key(0)))
    for tree in rules:
        assert state[f"{tree}.names"].keys() == state[tree].keys() != set()


def test_a_clients_own_model_has_its_own_running_statistics() -> None:
    task = LocalTraining(normed(), (SampleLoss(),))
    one = Method(task, {"model": Mean(), "buffers": Mean()}, Everybody(), Rate)
    state = one.init(World(0, [0], np.array([1]), Key(0)))
    assert (set(state["model"]), set(state["buffers"])) == (set(task.model.init()[0]), set(task.model.buffer_names))
    moved = {name: torch.full_like(t, 3) for name, t in state["buffers"].items()}
    kept = {"module.1.running_mean": T([5.0, 6.0])}
    for sent, stays in ((moved, {}), ({"module.1.running_var": moved["module.1.running_var"]}, {"personal": kept})):
        found = one.with_own(state, Result({"model": state["model"], "buffers": sent, "more": {}}, stays, {}))
        wanted = {**state["buffers"], **sent, **stays.get("personal", {})}
        assert all(torch.equal(found["buffers"][name], t) for name, t in wanted.items())
        assert set(found) == set(state), "what the server has no tree for is no part of it"
        assert set(found["buffers"]) == set(state["buffers"])
    x = T([[1.0]])
    by_hand = task.model.reference(state["model"], moved, x).logits
    result = Result({"model": state["model"], "buffers": moved}, {}, {})
    assert torch.equal(one.local_predictor(state, result)(x).logits, by_hand)
    assert not torch.equal(one.predictor(state)(x).logits, by_hand)  # type: ignore[misc]


def test_who_keeps_weights_with_clients_has_no_model_for_all() -> None:
    model = normed()
    rules = {"model": Mean(), "buffers": Mean()}

    def made(*names: str, **fields: Any) -> Method:
        return Method(
            LocalTraining(model, (SampleLoss(),), personal=frozenset(names)), rules, Everybody(), Rate, **fields
        )

    for name in ("module.0.weight", "module.2.bias"):
        with pytest.raises(ConfigError, match=f"keeps {name} with its clients, so its server has no whole model"):
            made(name)
        assert not made(name, has_global_model=False).has_global_model
    assert made("module.1.running_mean").has_global_model, "statistics are not the model"


def test_a_method_that_judges_together_has_its_clients_do_so() -> None:
    @dataclass(frozen=True)
    class Together(Method):
        @property
        def judges_together(self) -> bool:
            return True

    assert method(kind=Together).tasks["evaluate"].together
    assert not method().tasks["evaluate"].together


def test_a_methods_own_fields_come_before_the_shared_ones() -> None:
    noisy = PerSample(1.0, 2.0)
    setup = replace(tiny_setup(tiny_data(), tiny_model()), private=noisy)
    task = setup.local(SampleLoss())
    assert task.private == noisy
    assert setup.local(SampleLoss(), private=None).private is None
    longer = replace(setup.plan, epochs=9)
    assert setup.local(SampleLoss(), plan=longer).plan == longer
    everybody: Any = Everybody()
    own = setup.method(task, {"model": Mean()}, sampler=everybody, schedule=Rate, pools_data=True)
    assert (own.sampler, own.schedule, own.pools_data) == (everybody, Rate, True)
    compared = type("Compared", (Part,), {"couples": True})()
    for parts in ((SampleLoss(), compared), (compared, SampleLoss())):
        assert setup.local(*parts).plan.last_batch == "fill", "wherever it stands"


class Everybody:
    def size(self, clients: int) -> int:
        return clients

    def __call__(self, state: Any, world: World) -> list[int]:
        return sorted(world.clients, reverse=True)


Rate: Any = None


def test_a_task_takes_the_shared_settings_and_fills_batches_that_are_compared() -> None:
    @dataclass(frozen=True)
    class Pairs(Part):
        @property
        def couples(self) -> bool:
            return True

    plain = tiny_setup(tiny_data(), tiny_model(), optimizer=SGD(0.5))
    assert (plain.clip, plain.free_last_batch, plain.keeps_optimizer, plain.private) == (0.0, True, False, None)
    setup = replace(plain, clip=2.0, keeps_optimizer=True)
    bare = LocalTraining(setup.model, (SampleLoss(),))
    assert (bare.clip, bare.keeps_optimizer, bare.hands_over, bare.private) == (0.0, False, False, None)
    task = setup.local(SampleLoss(), frozen=frozenset({"a"}))
    assert (task.optimizer, task.clip, task.keeps_optimizer, task.private) == (SGD(0.5), 2.0, True, None)
    assert (task.plan, task.frozen, task.model) == (setup.plan, {"a"}, setup.model)
    assert setup.local(SampleLoss(), optimizer=SGD(), clip=0.0).optimizer == SGD()
    assert setup.local(SampleLoss(), clip=0.0).clip == 0.0
    assert setup.local(SampleLoss(), Pairs()).plan == replace(setup.plan, last_batch="fill")
    asked = replace(setup, free_last_batch=False)
    assert asked.local(SampleLoss(), Pairs()).plan == setup.plan
    made = setup.method(task, {"model": Mean()})
    assert (made.sampler, made.schedule, made.local) == (setup.sampler, setup.schedule, task)
    with pytest.raises(ConfigError, match="no public data 'x'"):
        setup.public("x")


# optimizers -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", [SGD(), SGD(0.5), SGD(0.5, 0.25, nesterov=True), SGD(0.0, 0.25)])
def test_a_stack_of_clients_steps_as_each_alone(optimizer: SGD) -> None:
    weights, grads = T([[1.0, 2.0], [3.0, -4.0]]), T([[8.0, -1.0], [0.5, 6.0]])

    def stepped(weight: Tensor, grad: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        params, state = {"w": weight.clone()}, {"velocity": {"w": velocity.clone()}}
        optimizer.update(params, {"w": grad}, state, weight.new_ones(()) * 0.5)
        return params["w"], state["velocity"]["w"]

    many, moved = torch.vmap(stepped)(weights, grads, torch.ones(2, 2))
    for client in range(2):
        g = grads[client] + optimizer.weight_decay * weights[client]
        v = optimizer.momentum * 1.0 + g
        used = g if not optimizer.momentum else g + optimizer.momentum * v if optimizer.nesterov else v
        torch.testing.assert_close(many[client], weights[client] - 0.5 * used)
        torch.testing.assert_close(moved[client], v if optimizer.momentum else torch.ones(2))
        alone, _ = stepped(weights[client], grads[client], torch.ones(2))
        torch.testing.assert_close(alone, many[client])
    assert optimizer.init({"w": weights}).keys() == ({"velocity"} if optimizer.momentum else set())


def test_where_steps_are_fused() -> None:
    """On a CPU the fused kernel is the faster one where there is more to a step than its gradient."""
    rate = T(0.1)
    found = [optimizer._fuses(rate) for optimizer in (SGD(), SGD(0.5), SGD(0.0, 0.1), SGD(0.5, 0.1))]
    assert found == [False, True, True, True]


def test_optimizers_by_name() -> None:
    assert OPTIMIZERS["adamw"]((0.8, 0.9), 1e-6, 0.1) == Adam((0.8, 0.9), 1e-6, 0.1, decoupled=True)
    assert OPTIMIZERS["sgd"](momentum=0.5) == SGD(0.5)
    assert Plan() == Plan(1, 0, 32, "pad", False)
    assert (SGD.stacks, Adam.stacks, Gated.stacks, Rates.stacks) == (True, False, False, False)
    assert Adam().init({})["count"]["steps"].tolist() == 0
    single, double = (Adam().init({"w": torch.zeros(2, dtype=d)}) for d in (torch.float32, torch.float64))
    assert (single["count"]["steps"].dtype, double["count"]["steps"].dtype) == (torch.float32, torch.float64)
    assert (single["first"]["w"].tolist(), single["second"]["w"].tolist()) == ([0, 0], [0, 0])
