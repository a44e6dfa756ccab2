"""What a node on a network has is enough for every method: its own data and key, the facts, and an initial model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.client import Answer, Request, Site, Work
from accord.core.methods import ALGORITHMS
from accord.core.tensors import Trees
from accord.engine.node import Node
from accord.errors import RunError
from accord.executors.sequential import answer, one_thread
from accord.wire.codec import decode, encode
from accord.wire.format import spec_of
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup

MODELS: dict[str, tuple[str, dict[str, Any]]] = {"fedfusion": ("mcmahan_cnn", {}), "fedbn": ("fedbr_cnn", {})}
COHORTS = Given([0, 2], [1, 3], [0, 1, 2])


class Nodes:
    """Every client apart: it builds its own tasks, keeps its own memory, and hears and speaks in bytes only."""

    def __init__(self, site: Site, name: str, settings: dict[str, Any], initial: bytes, model: Any) -> None:
        self.site = site
        self.memory: dict[int, Trees] = {}
        values = decode(initial)
        facts = site.data.facts
        stranger = tiny_model(model[0], seed=12345, **model[1])  # weights of its own, which must not matter
        self.tasks: dict[int, Any] = {}
        self.homes: dict[int, Node] = {}
        for client in range(len(facts.sizes)):
            mine = stranger.starting_from(values["model"], values["buffers"])
            setup = tiny_setup(site.data, mine, sampler=COHORTS)
            self.tasks[client] = ALGORITHMS[name](setup, **settings).tasks
            own = site.client_data(client)
            self.homes[client] = Node(client, own, site.key.client(client), torch.device("cpu"))

    def run(self, request: Request) -> list[Answer]:
        answers = []
        with one_thread():
            for work in request.works:
                heard = Request(request.task, request.round, request.lr, decode(encode(request.shared)), ())
                alone = Work(work.client, decode(encode(work.private)), self.memory.get(work.client))
                found = answer(self.homes[work.client], self.tasks[work.client][request.task], heard, alone)
                assert found.result is not None, found.error
                kept = {**self.memory.get(work.client, {}), **found.result.memory}
                self.memory[work.client] = kept
                said = encode(found.result.reply)
                reply = decode(said, expected=spec_of(found.result.reply), finite=True)
                answers.append(Answer(work.client, found.result._replace(reply=reply, memory={})))
        return answers

    def close(self) -> None:
        """Nothing to give back."""


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "centralized"])
def test_nodes_give_the_bits_of_a_simulation(name: str) -> None:
    chosen = MODELS.get(name, ("mlp", {}))
    whole = TinyRun(name, {}, model=tiny_model(chosen[0], **chosen[1]), sampler=COHORTS).rounds(3)
    params, buffers = whole.model.init()
    initial = encode({"model": params, "buffers": buffers})

    def nodes(site: Site, tasks: Any) -> Nodes:
        return Nodes(site, name, {}, initial, chosen)

    apart = TinyRun(name, {}, model=tiny_model(chosen[0], **chosen[1]), sampler=COHORTS, executor=nodes).rounds(3)
    assert equal_trees(whole.state, apart.state)
    kept: dict[int, Trees] = apart.executor.memory  # type: ignore[attr-defined]
    for client in whole.store.clients():
        assert equal_trees(whole.store.get(client), dict(sorted(kept[client].items())))


def test_a_node_is_nobody_else() -> None:
    run = TinyRun("fedavg")
    site = run.federation.site()
    node = Node(1, site.client_data(1), run.key.client(1), torch.device("cpu"))
    assert node.draws(1, "train", 0).order().random() == site.draws(1, "train", 0).order().random()
    with pytest.raises(RunError, match="this node is client 1, and was asked to be client 2"):
        node.client_data(2)
    with pytest.raises(RunError, match="asked to be client 0"):
        node.draws(0, "train", 0)


def test_clients_judge_the_global_model_on_their_own_test_data() -> None:
    data = tiny_data()
    run = TinyRun("fedavg", data=data, with_test=True).rounds(2)
    replies = run.exchange()("evaluate", [0, 1, 2, 3], run.algorithm.judged(run.state))
    model = run.model.module(run.state["model"], run.state["buffers"])
    for client, result in zip(replies.ids, replies.results, strict=True):
        x, y = data.client(client, "test")
        with torch.no_grad():
            logits = model(x)
        assert list(result.reply) == ["score"], "sums travel, and nothing else"
        score = {name: float(value) for name, value in result.reply["score"].items()}
        assert score["examples"] == len(y)
        assert score["correct"] == float((logits.argmax(1) == y).sum())
        assert score["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, y, reduction="sum")))
    assert all(not result.memory for result in replies.results)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_what_is_sent_for_judging_is_all_the_predictor_reads(name: str) -> None:
    chosen = MODELS.get(name, ("mlp", {}))
    run = TinyRun(name, model=tiny_model(chosen[0], **chosen[1]), sampler=COHORTS).rounds(1)
    predictor = run.algorithm.predictor(run.state)
    assert (predictor is None) == ("evaluate" not in run.algorithm.tasks)
    if predictor is not None:
        again = run.algorithm.predictor(run.algorithm.judged(run.state))
        assert again is not None
        x = tiny_data().test_pool.x
        assert torch.equal(predictor(x).logits, again(x).logits)
