"""FedBR: pseudo-data, max and min step, and whole rounds, against a reference written from the paper."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedbr import fedbr
from accord.algorithms.fedbr.components import BiasReduction
from accord.algorithms.mixup import Mixup
from accord.core.model import Model
from accord.core.optim import SGD, Adam, Schedule
from accord.core.plan import Plan
from accord.core.types import Batch, ClientData, Job
from accord.executors.processes import Processes
from accord.models import adapt
from accord.parts.losses import contrast
from accord.parts.mlp import init_mlp
from accord.parts.momentum import ClientMomentum
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])
CLASSES = 3


def tiny(options: dict[str, Any] | None = None, factory: Any = fedbr, executor: Any = None, **setup: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    built = factory(tiny_setup(data, model, **setup), **(options or {}))
    kinds = {"executor": executor} if executor else {}
    return TinyRun(built, data=data, model=model, **kinds, **setup)


# the reference -----------------------------------------------------------------------------------------------


def features(p: Params, x: Tensor) -> Tensor:
    (w1,) = (t for n, t in p.items() if t.dim() == 2 and not n.startswith("head"))
    (b1,) = (t for n, t in p.items() if t.dim() == 1 and not n.startswith("head"))
    return torch.relu(x.flatten(1) @ w1.T + b1)


def logits(p: Params, z: Tensor) -> Tensor:
    return z @ p["head.weight"].T + p["head.bias"]


def project(theta: Params, z: Tensor) -> Tensor:
    for layer in range(3):
        z = z @ theta[f"{layer}.weight"].T + theta[f"{layer}.bias"]
        z = torch.relu(z) if layer < 2 else z
    return z


def cos(a: Tensor, b: Tensor) -> Tensor:
    """A feature vector of dead units has no direction: its cosine is 0."""
    return (a * b).sum(1) / (a.norm(dim=1).clamp(min=1e-8) * b.norm(dim=1).clamp(min=1e-8))


def l_con(theta: Params | None, zp: Tensor, zg: Tensor, z: Tensor, tau: float) -> Tensor:
    n = min(len(zp), len(z))
    a, b, c = (t[:n] if theta is None else project(theta, t[:n]) for t in (zp, zg, z))
    f1, f2 = torch.exp(cos(a, b) / tau), torch.exp(cos(a, c) / tau)
    return -torch.log(f1 / (f1 + f2)).mean()


def soft_ce(scores: Tensor, q: Tensor) -> Tensor:
    return -(q * F.log_softmax(scores, 1)).sum(1).mean()


def pseudo_data(run: TinyRun, round: int, clients: list[int], size: int, means: int = 10) -> Tensor:
    """A client drawn uniformly for every pseudo-sample; the client draws the samples it averages."""
    counts = np.bincount(run.key.at("pseudo", round).integers(len(clients), size=size), minlength=len(clients))
    made = []
    for k, count in zip(clients, counts, strict=True):
        x, y = samples(run, k)
        draws = run.key.client(k).at("noise.contribute", round).random((1, 2, size, means))[0, 1]
        made += [x[np.floor(draws[i] * len(y)).astype(int)].mean(0) for i in range(count)]
    return torch.stack(made)


class Reference:
    """Algorithm 1 with all the options, one plain loop."""

    def __init__(self, run: TinyRun, **options: Any) -> None:
        self.run = run
        self.o = {
            "lam": 1.0, "mu": 0.5, "tau": 0.5, "max_step": True, "projector": True, "every_round": True,
            "mixed": 0, "rho": 0.0, "mixup": 0.0, "fedcm": 0.0, "decorr": 0.0, "ntd": 0.0, "size": 4,
            "both": False, **options,
        }  # fmt: skip
        self.w = dict(run.state["model"])
        self.theta: Params | None = dict(run.state["projector"]) if "projector" in run.state else None
        self.d: Params | None = None
        self.d_theta: Params | None = None
        self.xp = pseudo_data(run, 0, [0, 1, 2, 3], self.o["size"])

    def round(self, round: int, cohort: list[int]) -> None:
        if self.o["every_round"] and round > 0:
            self.xp = pseudo_data(self.run, round, cohort, self.o["size"])
        done = [self.client(k, round) for k in cohort]
        steps = [len(self.run.batches(k, "train", round)) for k in cohort]
        self.d = {n: sum((self.w[n] - m[n]) / (0.1 * s) for (m, _), s in zip(done, steps, strict=True)) for n in self.w}
        self.d = {n: t / len(cohort) for n, t in self.d.items()}
        self.w = {n: sum(m[n] for m, _ in done) / len(cohort) for n in self.w}
        if self.theta is not None:
            moved = [{n: (self.theta[n] - t[n]) / (0.1 * s) for n in t} for (_, t), s in zip(done, steps, strict=True)]
            self.d_theta = {n: sum(m[n] for m in moved) / len(cohort) for n in self.theta}
            self.theta = {n: sum(t[n] for _, t in done) / len(cohort) for n in self.theta}

    def client(self, k: int, round: int) -> tuple[Params, Params]:
        o, run = self.o, self.run
        x, y = samples(run, k)
        batches = run.batches(k, "train", round)
        rng = run.key.client(k).at("noise.train", round)
        if o["mixup"]:
            shares = rng.beta(o["mixup"], o["mixup"], len(batches))
            keys = rng.random((len(batches), max(map(len, batches))))
        mixed = rng.random((len(batches), o["size"], o["mixed"]))
        w, theta = dict(self.w), dict(self.theta or {})
        velocity: Params = {}
        theta_velocity: Params = {}
        for s, rows in enumerate(batches):
            i = torch.as_tensor(rows)
            bx, by = x[i], F.one_hot(y[i], CLASSES).to(x.dtype)
            others = [(1.0, y[i])]
            if o["mixup"]:
                j = i[keys[s][: len(i)].argsort()]
                bx = shares[s] * x[i] + (1 - shares[s]) * x[j]
                by = shares[s] * by + (1 - shares[s]) * F.one_hot(y[j], CLASSES)
                others = [(shares[s], y[i]), (1 - shares[s], y[j])]
            xp, q = self.xp.clone(), torch.full((o["size"], CLASSES), 1 / CLASSES, dtype=x.dtype)
            for row in range(o["size"] if o["mixed"] else 0):
                for share in mixed[s, row]:
                    pick = int(share * len(i))
                    xp[row] += bx[pick]
                    q[row] += by[pick]
            xp, q = xp / (o["mixed"] + 1), q / (o["mixed"] + 1)
            zg = features(self.w, xp)

            if theta and o["max_step"]:
                held = features(w, xp), features(w, bx)

                def away(t: Params, held: Any = held, zg: Tensor = zg) -> Tensor:
                    return l_con(t, held[0], zg, held[1], o["tau"])

                up = gradient(away, theta)
                if o["both"] and self.d_theta is not None:  # D points where the projectors came from, the step goes up
                    up = {n: o["fedcm"] * g - (1 - o["fedcm"]) * self.d_theta[n] for n, g in up.items()}
                theta_velocity = {n: o["rho"] * theta_velocity.get(n, 0) + g for n, g in up.items()}
                theta = {n: t + 0.1 * theta_velocity[n] for n, t in theta.items()}

            def loss(p: Params, bx: Tensor = bx, by: Tensor = by, xp: Tensor = xp, q: Tensor = q,
                     zg: Tensor = zg, theta: Params = theta, others: Any = others) -> Tensor:  # fmt: skip
                z, zp = features(p, bx), features(p, xp)
                scores = logits(p, z)
                total = soft_ce(scores, by) + o["lam"] * soft_ce(logits(p, zp), q)
                if o["mu"]:
                    total = total + o["mu"] * l_con(theta or None, zp, zg, z, o["tau"])
                if o["decorr"]:
                    n = (z - z.mean(0)) / torch.sqrt(z.var(0) + 1e-8)
                    c = n.T @ n
                    off = (c**2).sum() - (torch.diagonal(c) ** 2).sum()
                    total = total + o["decorr"] * off / (len(c) * (len(c) - 1)) / len(z)
                if o["ntd"]:
                    teacher = logits(self.w, features(self.w, bx))
                    for share, labels in others:
                        keep = F.one_hot(labels, CLASSES) == 0
                        mine = F.softmax(scores[keep].view(len(z), -1), 1)
                        theirs = F.softmax(teacher[keep].view(len(z), -1), 1)
                        total = total + o["ntd"] * share * (theirs * torch.log(theirs / mine)).sum(1).mean()
                return total

            g = gradient(loss, w)
            if o["fedcm"] and self.d is not None:
                g = {n: o["fedcm"] * t + (1 - o["fedcm"]) * self.d[n] for n, t in g.items()}
            velocity = {n: o["rho"] * velocity.get(n, 0) + t for n, t in g.items()}
            w = {n: t - 0.1 * velocity[n] for n, t in w.items()}
        return w, theta


def agree(ours: Params, reference: Params) -> bool:
    return all(torch.allclose(ours[n], reference[n], rtol=1e-7, atol=1e-9) for n in reference)


ALL = ("mixup: alpha=0.6", "fedcm: alpha=0.3", "feddecorr: beta=0.2", "fedntd: beta=0.4")


@pytest.mark.parametrize(
    ("options", "reference", "setup"),
    [
        ({}, {}, {}),
        ({"mu": 0.0, "lam": 0.3}, {"mu": 0.0, "lam": 0.3}, {}),  # component 1
        ({"lam": 0.0, "tau": 2.0}, {"lam": 0.0, "tau": 2.0}, {}),  # component 2
        ({"max_step": False}, {"max_step": False}, {}),
        ({"projector": False}, {"projector": False}, {}),
        ({"every_round": False, "mixed": 1}, {"every_round": False, "mixed": 1}, {}),
        ({"mixed": 3}, {"mixed": 3}, {"optimizer": SGD(0.5)}),
        ({"size": 7, "mu": 2.0}, {"size": 7, "mu": 2.0}, {}),
        ({"size": 3, "projector": False}, {"size": 3, "projector": False}, {}),
        ({"extra": ALL, "mixed": 1}, {"mixed": 1, "mixup": 0.6, "fedcm": 0.3, "decorr": 0.2, "ntd": 0.4}, {}),
        ({"extra": ("fedcm: alpha=0.3",), "fedcm_steps": "both"}, {"fedcm": 0.3, "both": True}, {}),
    ],
)
def test_three_rounds_with_partial_participation(
    options: dict[str, Any], reference: dict[str, Any], setup: dict[str, Any], float64: None
) -> None:
    run = tiny(options, sampler=Given(*COHORTS), **setup)
    optimizer = setup.get("optimizer", SGD())
    expected = Reference(run, rho=optimizer.momentum, **reference)
    for round, cohort in enumerate(COHORTS):
        expected.round(round, cohort)
    run.rounds(3)
    assert agree(run.state["model"], expected.w)
    assert torch.allclose(run.state["pseudo"]["x"], expected.xp, atol=1e-12)
    if expected.theta is not None and expected.o["max_step"]:
        assert agree(run.state["projector"], expected.theta)
    if expected.o["fedcm"]:
        assert expected.d is not None
        assert agree(run.state["momentum"], expected.d)
    if expected.o["both"]:
        assert expected.d_theta is not None
        assert agree(run.state["projector_momentum"], expected.d_theta)


def test_one_step_by_hand_of_the_contrast(float64: None) -> None:
    # Equal cosines give log 2; cosines 1 and -1 at tau = 2 give log(1 + e^-1); swapped log(1 + e).
    a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    assert float(contrast(a, b, b, 0.5)) == pytest.approx(math.log(2))
    assert float(contrast(a, b, -b, 2.0)) == pytest.approx(math.log(1 + math.exp(-1)))
    assert float(contrast(a, -b, b, 2.0)) == pytest.approx(math.log(1 + math.e))
    # The paper's tau divides: at 0.5 the same angles count four times as much as at 2.
    assert float(contrast(a, b, -b, 0.5)) == pytest.approx(math.log(1 + math.exp(-4)))


def test_the_max_step_raises_what_the_min_step_lowers(float64: None) -> None:
    run = tiny({"lam": 0.0})
    x, _ = samples(run, 3)
    w, xp = run.state["model"], run.state["pseudo"]["x"]
    moved = {n: t + 0.1 for n, t in w.items()}
    zp, zg, z = features(moved, xp), features(w, xp), features(moved, x[:4])
    before = dict(run.state["projector"])
    after = {n: t + 1e-3 * g for (n, t), g in zip(
        before.items(), gradient(lambda t: l_con(t, zp, zg, z, 0.5), before).values(), strict=True)}  # fmt: skip
    assert l_con(after, zp, zg, z, 0.5) > l_con(before, zp, zg, z, 0.5)


# identities and switches --------------------------------------------------------------------------------------


def test_without_both_components_it_is_fedavg_bit_for_bit() -> None:
    ours = tiny({"lam": 0.0, "mu": 0.0}).rounds(2)
    assert equal_trees(ours.state, tiny({"weight": "uniform"}, fedavg).rounds(2).state)
    ours = tiny({"lam": 0.0, "mu": 0.0, "extra": ("mixup: alpha=0", "fedntd: beta=0")}).rounds(2)
    assert equal_trees(ours.state, tiny({"weight": "uniform"}, fedavg).rounds(2).state)


def test_parts_from_python_are_parts_by_name() -> None:
    by_name = tiny({"extra": ("mixup: alpha=0.4",)}).rounds(2)
    assert equal_trees(by_name.state, tiny({"parts": (Mixup(0.4),)}).rounds(2).state)


def test_what_travels() -> None:
    run = tiny().rounds(1)
    assert run.replies is not None
    assert sorted(run.algorithm.message(run.state)) == ["buffers", "model", "projector", "pseudo"]
    assert sorted(run.replies.results[0].reply) == ["buffers", "model", "projector"]
    hidden = 5 * 256 + 256 + 256 * 256 + 256 + 256 * 128 + 128
    assert sum(t.numel() for t in run.state["projector"].values()) == hidden
    still = tiny({"max_step": False})
    first = {n: t.clone() for n, t in still.state["projector"].items()}
    still.rounds(2)
    assert still.replies is not None
    assert "projector" not in still.replies.results[0].reply
    assert equal_trees({"p": still.state["projector"]}, {"p": first})
    for options in ({"mu": 0.0}, {"projector": False}):
        bare = tiny(options).rounds(1)
        assert "projector" not in bare.state


def test_pseudo_data_once_or_every_round() -> None:
    once, each = tiny({"every_round": False}), tiny({"every_round": True})
    first = once.state["pseudo"]["x"].clone()
    assert torch.equal(each.state["pseudo"]["x"], first)
    once.rounds(2)
    each.rounds(1)
    assert torch.equal(each.state["pseudo"]["x"], first)  # the first round uses those made before it
    each.rounds(1)
    assert torch.equal(once.state["pseudo"]["x"], first)
    assert not torch.equal(each.state["pseudo"]["x"], first)


def test_filled_batches_only_where_batches_are_paired() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    assert fedbr(setup).local.plan.last_batch == "fill"
    assert fedbr(setup, mu=0.0).local.plan.last_batch == "pad"
    run = tiny(plan=Plan(epochs=1, batch_size=10)).rounds(1)  # clients smaller than a batch: the first are paired
    assert run.state["pseudo"]["x"].shape[0] == 10


def test_a_padded_batch_counts_like_a_short_one(float64: None) -> None:
    run = tiny({"mixed": 1})
    task = run.algorithm.tasks["train"]
    x, y = samples(run, 3)
    info = {"lr": torch.tensor(0.1), "round": torch.tensor(0), "steps": torch.tensor(1.0)}
    job = Job(run.algorithm.message(run.state), {}, {}, info, ClientData(x, y, x[:0], y[:0], CLASSES))
    noise = {"fedbr.mixed": torch.tensor([[0.1], [0.99], [0.5], [0.7]])}
    ends = []
    for rows in (3, 4):
        weight = torch.tensor([1.0, 1.0, 1.0, 0.0])[:rows]
        with torch.no_grad():
            carry = task.step(job, task.begin(job), Batch(x[:rows], y[:rows], weight, torch.arange(rows), noise))
        ends.append(task.finish(job, carry).reply)
    assert all(agree(ends[0][tree], ends[1][tree]) for tree in ends[0])


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.fc(x.flatten(1)))))


def test_batch_norm_sees_the_pseudo_batch_as_a_batch_of_its_own(float64: None) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        data, model = tiny_data(dtype=torch.float64), Model(adapt(Normed(), head="head"))
    setup = tiny_setup(data, model, plan=Plan(steps=1, batch_size=4, last_batch="fill"), sampler=Given([2]))
    run = TinyRun(fedbr(setup, every_round=False), data=data, model=model)
    w, xp = dict(run.state["model"]), run.state["pseudo"]["x"]
    x, _ = samples(run, 2)
    running = torch.zeros(6)
    for seen in (x[run.batches(2, "train", 0)[0]], xp):
        (weight,) = (t for n, t in w.items() if n.endswith("fc.weight"))
        (bias,) = (t for n, t in w.items() if n.endswith("fc.bias"))
        running = 0.9 * running + 0.1 * (seen.flatten(1) @ weight.T + bias).mean(0)
    run.rounds(1)
    (ours,) = (t for n, t in run.state["buffers"].items() if n.endswith("running_mean"))
    assert torch.allclose(ours, running, atol=1e-12)
    (count,) = (t for n, t in run.state["buffers"].items() if n.endswith("num_batches_tracked"))
    assert int(count) == 2


def test_other_optimizers_and_clipping() -> None:
    tiny(optimizer=Adam(), lr=1e-3).rounds(2)
    data, model = tiny_data(), tiny_model()
    setup = replace(tiny_setup(data, model, plan=Plan(steps=1, batch_size=4)), clip=1e-3)
    run = TinyRun(fedbr(setup), data=data, model=model)
    before = {n: t.clone() for n, t in run.state["projector"].items()}
    run.rounds(1)
    moved = sum(float((run.state["projector"][n] - before[n]).pow(2).sum()) for n in before) ** 0.5
    assert moved <= 0.1 * 1e-3 * 1.01  # one step of at most lr * clip; uniform mean of such steps


def test_processes_give_the_same_bits() -> None:
    options = {"mixed": 1, "extra": ("mixup", "fedcm")}
    many = tiny(options, executor=partial(Processes, workers=2), sampler=Given(*COHORTS))
    try:
        assert equal_trees(many.rounds(3).state, tiny(options, sampler=Given(*COHORTS)).rounds(3).state)
    finally:
        many.close()


def test_the_max_step_mixes_first_and_clips_then(float64: None) -> None:
    """A mean direction of length 100 in one weight, clipping at 1/2, rate 0.1: a step of 0.05, nearly all along it."""
    momentum = ClientMomentum(Schedule(0.1), SGD(), 0.25)
    part = BiasReduction(1.0, 0.5, 0.5, 4, 0, True, True, SGD(), 0.5, momentum)
    theta = init_mlp(np.random.default_rng(0), (5, 4, 3))
    along = {name: torch.zeros_like(t) for name, t in theta.items()}
    along["0.weight"][0, 0] = 100.0
    info = {"round": torch.tensor(1), "lr": torch.tensor(0.1)}
    job = Job({"projector_momentum": along}, {}, {}, info, None)  # type: ignore[arg-type]
    corner = {"projector": {name: t.clone() for name, t in theta.items()}, "optimizer": SGD().init(theta)}
    features = torch.tensor(np.random.default_rng(1).normal(size=(3, 4, 5)))
    part._max_step(job, corner, features, torch.ones(4))
    moved = {name: corner["projector"][name] - t for name, t in theta.items()}
    assert sum(float(t.square().sum()) for t in moved.values()) ** 0.5 == pytest.approx(0.05, rel=1e-6)
    assert float(moved["0.weight"][0, 0]) == pytest.approx(-0.05, rel=1e-2)
