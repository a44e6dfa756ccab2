"""The server of a federation: gather the sites, then a run like any other, with nodes for clients.

A run's folder is all it needs: the same folder given again means to go on, from the last exchange whose answers reached
the disk, to the same bits.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from accord.client import Site
from accord.config import RunConfig, config_hash, load_config, to_dict
from accord.core.keys import Key
from accord.core.tensors import Trees
from accord.core.types import State, World
from accord.data.own.given import GIVEN
from accord.engine.build import build_algorithm, build_model, build_setup, choose_device
from accord.engine.exchange import EmptyRound, RoundExchange
from accord.engine.federation import Federation
from accord.engine.filtering import budget_of, filters_of, privately
from accord.engine.folder import CONFIG, begin_in, read_config
from accord.engine.personal import OwnModels
from accord.engine.problem import check_asked, check_defined, facts_of
from accord.engine.run import Outcome, carry_out
from accord.engine.suitability import check_filters
from accord.engine.trial import try_network
from accord.errors import ConfigError, DataError
from accord.flower.asking import Asking, Manner
from accord.flower.evaluation import Scores, remote_evaluator
from accord.flower.exchange import FlowerExchange
from accord.flower.expected import Expected
from accord.flower.facts import Outline, check_alike, fields_to_json, outline
from accord.flower.journal import Journal
from accord.flower.keys import Keys
from accord.flower.node import SECTIONS
from accord.flower.post import Grid, Hello, Post, pause
from accord.flower.roster import FILE, Entry, Roster, read_roster
from accord.flower.sessions import Invitation, Session
from accord.flower.stream import StreamingNodes
from accord.flower.versions import Versions
from accord.observe import Audience, Observer
from accord.pace.clock import Clock
from accord.wire.codec import encode

log = logging.getLogger("accord.flower")

NOBODY = "0" * 32  # the run of a hello before there is one
REMIND = 30.0


@dataclass(frozen=True)
class RealFederation(Federation):
    """One whose clients are nodes."""

    roster: Roster = field(kw_only=True)

    def world(self, round: int, clock: Clock | None = None) -> World:
        """Of those that have come by then."""
        sizes = self.roster.sizes(round)
        members = [client for client in range(len(sizes)) if sizes[client] > 0]
        return World(round, members, sizes, self.key)


def serve(grid: Grid, config: RunConfig, folder: Path, observers: Sequence[Observer] = ()) -> Outcome:
    """Begin a run in `folder`, or go on with the one in it."""
    check_config(config)
    if (folder / CONFIG).is_file():
        roster = read_roster(folder)
        federation = federate_nodes(config, roster)
        before = read_config(folder)
        if config_hash(before) != config_hash(federation.config):
            raise ConfigError(f"{folder} holds a run with other settings: undo the change, or choose another folder")
        post, begins = _post(grid, roster.run, config), False
    else:
        run = secrets.token_hex(16)
        post = _post(grid, run, config)
        found = gathered(post, config)
        roster = Roster.begun(run, found, config.federation.sites)
        federation = federate_nodes(config, roster)
        begin_in(folder, federation.config, federation.identity, {FILE: roster.text()})
        roster.path, begins = folder / FILE, True
    hosting = Nodes(federation, roster, post, folder, begins)
    evaluator = remote_evaluator(federation, hosting.data, hosting.judge)
    hosting.came = lambda: setattr(evaluator, "scene", replace(evaluator.scene, data=outline(roster.complete())))
    return carry_out(federation, evaluator, folder, Audience(observers), hosting)


def check_config(config: RunConfig) -> None:
    """Refuse what only a simulation can do."""
    for key, value, usual, why in (
        ("transform.name", config.transform.name, "none", "sites have their inputs as they are"),
        ("partition.unseen", config.partition.unseen, 0, "sites that never train are not on the roster"),
        ("clients.drop_rate", config.clients.drop_rate, 0.0, "nodes drop out by themselves"),
        ("pace", config.pace.used, False, "the clock is the real one"),
        ("attack.name", config.attack.name, "none", "hostile nodes come by themselves"),
        ("evaluate.split", config.evaluate.split, "test", "every node decides itself what it holds out"),
        ("local.class_weights", config.local.class_weights == "balanced", False, "it needs all labels in one place"),
        ("checkpoint.every", config.checkpoint.every == 0, False, "a run over a network must be able to go on"),
    ):
        if value != usual:
            raise ConfigError(f"{key} is not for a real federation: {why}; leave it out")


def _post(grid: Grid, run: str, config: RunConfig) -> Post:
    section = config.federation
    return Post(grid, run, ttl=2 * section.deadline + 60, largest=section.largest_message_mb << 20)


def gathered(post: Post, config: RunConfig) -> dict[str, Entry]:
    """The sites that come before a run begins: as many as are wanted, or those that came in time."""
    section = config.federation
    wanted = section.nodes or len(section.sites)  # 0: all that are connected
    least = max(1, min(wanted, config.clients.minimum))
    found: dict[str, Entry] = {}
    keys = Keys.read(section.keys)
    began = reminded = post.now()
    log.info("waiting for %s", f"{wanted} sites" if wanted else "all sites that are connected")

    def complete() -> bool:
        if post.now() - began > section.gather:
            return len(found) >= least
        return len(found) >= wanted if wanted else bool(found) and not post.silent

    while not complete():
        for hello in post.look():
            if why := keys.refusal(hello.site, hello.key) or _stranger(hello, found, section.sites):
                post.refuse(hello.node, why)
                continue
            found[hello.site] = Entry(hello.site, hello.mark, 0, hello.facts)
            post.settle(hello)
        if post.now() - reminded > REMIND:
            reminded = post.now()
            log.info("%d sites are here: %s", len(found), ", ".join(sorted(found)) or "nobody")
        if not complete():
            pause()
    return found


def _stranger(hello: Hello, found: Mapping[str, Entry], named: Sequence[str]) -> str:
    """Why a node is not let in before the start."""
    if named and hello.site not in named:
        return f"{hello.site!r} is not among federation.sites"
    if hello.site in found and found[hello.site].mark != hello.mark:
        return f"it calls itself {hello.site!r}, but is not the node that came by this name first"
    first = next((entry.facts for entry in found.values() if entry.facts is not None), None)
    try:
        if first is not None:
            check_alike(first, hello.facts, f"site {hello.site!r}")
    except DataError as error:
        return str(error)
    return "" if hello.facts.samples else f"site {hello.site!r} has no training samples"


def federate_nodes(config: RunConfig, roster: Roster) -> RealFederation:
    """Everything a run needs but the samples."""
    data = outline(roster.complete())
    config = _settled(config, data)
    check_asked(config.task, data)
    device = choose_device(config.device)
    facts = facts_of(config, data)
    model = build_model(config, facts, None, device)
    try_network(model, data)
    everybody = replace(facts, sizes=np.maximum(facts.sizes, 1))  # cohorts are a share of all, also of those to come
    setup = build_setup(config, everybody, model)
    budget = budget_of(config, facts, setup, steady=False)  # nodes come and go
    algorithm = build_algorithm(config, privately(setup, budget))
    check_defined(config.algorithm.name, algorithm, facts)
    if algorithm.pools_data:
        raise ConfigError(f"algorithm {config.algorithm.name} gathers all data in one place: it is no federation")
    filters = filters_of(config, budget, algorithm)
    check_filters(config, facts, algorithm, Site(data, Key(0), device), filters)
    return RealFederation(algorithm, data, model, config, own_data=True, filters=filters, real=True, roster=roster)


def _settled(config: RunConfig, data: Outline) -> RunConfig:
    """With nothing left open: the sites are the clients."""
    partition = replace(config.partition, name="natural", clients=len(data), test="natural", options={})
    given = replace(config.data, name=GIVEN, options={})
    task = data.problem if config.task == "auto" else config.task
    return replace(config, task=task, partition=partition, data=given)


def invitation(federation: RealFederation, data: Outline, judges: bool) -> Invitation:
    """What nodes are told: settings that concern them, facts of the whole, the initial model. Never the seed."""
    params, buffers = federation.model.init()
    settings = {name: value for name, value in to_dict(federation.config).items() if name in SECTIONS}
    if federation.filters.budget is not None:  # the noise that was found from epsilon
        settings["privacy"] |= {"noise": federation.filters.budget.protection.noise, "epsilon": 0.0}
    facts: dict[str, Any] = {
        "shape": list(data.sample_shape),
        "classes": list(data.classes),
        "clients": len(data),
        "problem": data.problem,
        "vocabulary": data.vocabulary,
        "fields": None if data.fields is None else fields_to_json(data.fields),
        "class_weights": list(federation.facts.class_weights),
    }
    initial = encode({"model": params, "buffers": buffers})
    return Invitation(config_hash(federation.config), settings, facts, judges, initial)


class Nodes:
    """A `Hosting`: the clients are nodes, and keep their memory themselves."""

    def __init__(self, federation: RealFederation, roster: Roster, post: Post, folder: Path, begins: bool) -> None:
        self.federation, self.roster, self.post, self.folder, self.begins = federation, roster, post, folder, begins
        assert isinstance(federation.data, Outline)
        self.data = federation.data
        self.came: Callable[[], None] = lambda: None
        self._session: Session | None = None
        self._streams: dict[str, Asking] = {}
        self._round = 0

    @contextmanager
    def memory(self, folder: Path) -> Iterator[Versions]:
        """Only its versions are known here."""
        yield Versions()

    def own_models(self) -> OwnModels:
        """They stay with their owners."""
        why = "they stay at their sites" if self.federation.algorithm.personal else ""
        return OwnModels(None, self.federation.facts.members, why)

    def clients(self, store: Any, own: OwnModels, audience: Audience, *, with_test: bool, kept: Trees) -> Nodes:
        """Invite them."""
        federation, section = self.federation, self.federation.config.federation
        site = Site(self.data, Key(0), federation.device, with_test=True)
        self._session = Session(
            self.post,
            self.roster,
            store,
            Journal(self.folder / "checkpoint" / "exchanges"),
            Expected(federation.algorithm.tasks, self.data, federation.facts, site),
            federation.filters,
            invitation(federation, self.data, with_test),
            federation.key,
            Keys.read(section.keys),
            federation.device,
            federation.config.clients.minimum,
            self._cohort(),
            section.deadline,
            section.patience,
            audience.client_done_in_round,
            self._note,
            lambda: self.came(),
        )
        self._session.clock = Clock(federation.key, kept=kept)
        if self.begins:
            self._session.gather(section.gather)
        else:
            self._session.joined = {entry.site for entry in self.roster.entries if entry.facts is not None}
        return self

    @property
    def session(self) -> Session:
        """What is going on with the nodes."""
        assert self._session is not None
        return self._session

    def start(self) -> RoundExchange:
        return FlowerExchange(self.session, 0, self._lr(0), Manner("start"))

    def exchange(self, round: int) -> RoundExchange:
        self._round = round
        return StreamingNodes(self.session, round, self._lr(round), streams=self._streams)

    def rehearsal(self) -> RoundExchange:
        """Only the numbers are sent: the clients' own models stay where they are."""
        rounds = self.federation.config.rounds
        self._round = rounds
        return FlowerExchange(
            self.session, rounds, self._lr(rounds), Manner("end", keeps=False, sends=False, waits=False)
        )

    def judge(self, state: State) -> Scores:
        """What the nodes that are there say of the global model."""
        algorithm, round = self.federation.algorithm, self._round
        exchange = FlowerExchange(self.session, round, 0.0, Manner("judge", keeps=False, waits=False))
        try:
            # Who is still training is not waited for, but at the end: then every site has its line in the table.
            busy = self.session.clock.at_work() if round + 1 < self.federation.config.rounds else ()
            free = [client for client in self.federation.world(round).clients if client not in busy]
            replies = exchange("evaluate", free, algorithm.judged(state))
        except EmptyRound as reason:
            log.warning("round %d is not judged: %s", round + 1, reason)
            return {}
        return {client: result.reply["score"] for client, result in zip(replies.ids, replies.results, strict=True)}

    def world(self, round: int) -> World:
        return self.federation.world(round)

    def under_way(self) -> Trees:
        """Who is at work on what, where a method lets clients answer whenever they are done."""
        return self.session.clock.trees()

    def memory_of(self, client: int) -> Trees:
        """It is with the client."""
        return {}

    def settled(self, round: int) -> None:
        self.session.journal.drop(round)

    def close(self) -> None:
        """Nodes go on waiting for whoever asks next."""

    def _cohort(self) -> tuple[int, int]:
        """How many make a round, and how many are asked so that enough come early."""
        clients = self.federation.config.clients
        return clients.cohort(len(self.roster)), clients.asked(len(self.roster))

    def _lr(self, round: int) -> float:
        return self.federation.algorithm.schedule.at(round)

    def _note(self, text: str) -> None:
        with open(self.folder / "notes.txt", "a", encoding="utf-8") as file:
            file.write(text + "\n")


def read_server_config(path: str) -> RunConfig:
    """The server's own file."""
    return load_config(Path(path).expanduser())
