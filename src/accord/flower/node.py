"""A node at work: letters in, letters out. It knows nothing of Flower, and nothing of other sites.

It builds its tasks from its own registries, out of settings that were checked as any configuration is; the letter says
only which of them to run. Whatever goes wrong here is an answer, never an end.
"""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from accord.client import Request, Work, run_client
from accord.config import RunConfig, from_dict
from accord.core.algorithm import Algorithm, Setup
from accord.core.disclosure import declared
from accord.core.keys import Key
from accord.core.tensors import Trees, ordered_trees
from accord.core.types import ClientData, Facts
from accord.data.federated import Dataset
from accord.engine.build import build_algorithm, build_model, build_setup, choose_device
from accord.engine.checkpoint import to_device
from accord.engine.filtering import filters_of, privately
from accord.engine.logs import versions
from accord.engine.node import Node
from accord.errors import AccordError, ConfigError, DataError, DivergedError
from accord.executors.gpu.precision import numerics
from accord.executors.sequential import one_thread
from accord.filters import PROTECTIONS, Budget, Filters
from accord.filters.accounting import Draw
from accord.flower import protocol
from accord.flower.consent import Consent, noise_key
from accord.flower.facts import SiteFacts, fields_from_json
from accord.flower.own_data import check_own, client_data, facts_of_own, load_own
from accord.flower.owner import Owner
from accord.flower.protocol import HELLO, JOIN, PROTOCOL, TASK, Letter, read_header, shortened
from accord.flower.remembered import LostError, RunMemory, forget_oldest, run_memory
from accord.flower.unchanged import Stamp
from accord.problems import PROBLEMS
from accord.wire.codec import decode, encode
from accord.wire.format import Limits, Spec, check_expected, spec_of
from accord.wire.records import Field, check, shown

log = logging.getLogger("accord.flower")

# What a server may set on a node; all else in a configuration is the server's own, or the node's.
SECTIONS = ("rounds", "task", "precision", "model", "algorithm", "local", "clients", "privacy", "compress")
MOST_MEMBERS = 2  # runs whose networks are kept in memory; those of others are built again from the disk
ENCLOSED = {HELLO: (), JOIN: ("initial",), TASK: ("shared", "private")}
FEDERATION = {
    "shape": protocol.SHAPE,
    "classes": protocol.WORDS,
    "clients": protocol.WHOLE,
    "problem": protocol.ANY,
    "vocabulary": protocol.WHOLE,
    "fields": Field(lambda value: value is None or isinstance(value, list), "a list or null"),
    "class_weights": Field(lambda value: isinstance(value, list) and all(type(v) is float for v in value), "numbers"),
}


@dataclass(frozen=True)
class Member:
    """This node in one run: the method as it was told, and the client it is."""

    config: RunConfig
    algorithm: Algorithm
    filters: Filters
    hash: str
    home: Node  # its test samples are there if it is to judge its own model whenever it trains
    bench: Node  # the same with its test samples
    memory: RunMemory

    @property
    def method(self) -> str:
        """The method's name."""
        return self.config.algorithm.name


class NodeService:
    """Answers one letter after the other. What it built for a run is kept while the process lives."""

    def __init__(self, owner: Owner) -> None:
        self.owner, self.consent = owner, Consent.of(owner)
        self.device = choose_device(owner.device)
        self._members: dict[str, tuple[Stamp, Member]] = {}

    @cached_property
    def dataset(self) -> Dataset:
        """The site's own data, read when it is first needed."""
        found = load_own(self.owner)
        check_own(found)
        return found

    @cached_property
    def facts(self) -> SiteFacts:
        """What it says of them."""
        return facts_of_own(self.dataset, "statistic" not in self.owner.refuse)

    def limits(self, kind: str) -> dict[str, int]:
        """The enclosures a letter may have, and how many bytes each."""
        return dict.fromkeys(ENCLOSED[kind], self.owner.largest)

    def answer(self, kind: str, header: str, enclosures: Mapping[str, bytes]) -> Letter:
        """What is said to a letter; DataError for one that is none."""
        return {HELLO: self._hello, JOIN: self._join, TASK: self._task}[kind](header, enclosures)

    def _hello(self, header: str, enclosures: Mapping[str, bytes]) -> Letter:
        asked = read_header(header, protocol.HELLO_ASKED, "the hello")
        protocol.check_protocol(asked["protocol"], "the server")
        return Letter(
            {
                "protocol": PROTOCOL,
                "site": self.owner.site,
                "mark": self.owner.mark(),
                "facts": self.facts.to_json(),
                "allows": dict(self.consent.to_json()),
                "versions": versions(),
            }
        )

    def _join(self, header: str, enclosures: Mapping[str, bytes]) -> Letter:
        asked = read_header(header, protocol.JOIN_ASKED, "the invitation")
        protocol.check_protocol(asked["protocol"], "the server")
        said = {"run": asked["run"], "client": asked["client"], "status": "done", "why": ""}
        memory = run_memory(self.owner.folder, asked["run"])
        try:
            member = self._member(asked, enclosures.get("initial", b""), memory)
        except AccordError as error:
            log.warning("run %s is refused: %s", asked["run"][:8], error)
            return Letter(said | {"status": "refused", "why": shortened(str(error))})
        forget_oldest(self.owner.folder, asked["run"])
        memory.tell(asked, enclosures["initial"])
        self._keep(asked["run"], member)
        log.info("joined run %s as client %d: %s", asked["run"][:8], asked["client"], member.method)
        return Letter(said)

    def _member(self, asked: Mapping[str, Any], initial: bytes, memory: RunMemory) -> Member:
        """The node in a run, if its owner agrees to all that the method sends."""
        settings, facts = dict(asked["settings"]), dict(asked["facts"])
        if set(settings) - set(SECTIONS):
            raise ConfigError(f"the server sets {', '.join(sorted(set(settings) - set(SECTIONS)))}, which it may not")
        check(facts, FEDERATION, "the facts of the federation")
        config = from_dict(settings, source="of the server")
        known = self._agreed(facts, asked["client"])
        values = decode(initial, limits=Limits(self.owner.largest), finite=True)
        with torch.random.fork_rng(devices=[]):
            model = build_model(config, known, None, self.device)
        params, buffers = model.init()
        check_expected(spec_of(values), spec_of({"model": params, "buffers": buffers}))
        model = model.starting_from(to_device(values, self.device)["model"], to_device(values, self.device)["buffers"])
        setup = build_setup(config, known, model)
        budget = _budget(config, setup)
        algorithm = build_algorithm(config, privately(setup, budget))
        if said := self.consent.objection(config.algorithm.name, algorithm):
            raise ConfigError(said)
        key, judged = self._key(config, asked["key"]), self._data
        untold = judged._replace(test_x=judged.test_x[:0], test_y=judged.test_y[:0])
        home = Node(asked["client"], judged if asked["judges"] else untold, key, self.device)
        filters = filters_of(config, budget, algorithm)
        return Member(config, algorithm, filters, asked["hash"], home, replace(home, data=judged), memory)

    def _key(self, config: RunConfig, given: str) -> Key:
        """What the node draws from: as it was told; with its own secret where noise is to hide it from the server."""
        if config.privacy.name not in ("local", "sample"):
            return Key(int(given, 16))
        digest = hashlib.sha256(b"accord draws " + self.owner.secret() + given.encode()).digest()
        return Key(int.from_bytes(digest, "big"))

    @cached_property
    def _data(self) -> ClientData:
        return client_data(self.dataset, self.device)

    def _agreed(self, facts: Mapping[str, Any], client: int) -> Facts:
        """What is known of the whole; it must fit this site's own data."""
        own = self.facts
        if facts["problem"] not in PROBLEMS:
            raise ConfigError(f"the server asks for the task {shown(facts['problem'])}, which is not known here")
        fields = None if facts["fields"] is None else fields_from_json(facts["fields"], "the server")
        for what, theirs, ours in (
            ("samples of shape", tuple(facts["shape"]), own.x.shape),
            ("the task", facts["problem"], own.problem),
            ("the classes", tuple(facts["classes"]), own.classes),
        ):
            if theirs != ours:
                raise DataError(f"the server expects {what} {shown(theirs)}, this site has {shown(ours)}")
        if not client < facts["clients"] <= 1 << 20 or facts["vocabulary"] < own.vocabulary:
            raise DataError("the server's numbers of clients or of token ids do not fit this site")
        return Facts(
            tuple(facts["shape"]),
            len(facts["classes"]),
            np.ones(facts["clients"], dtype=np.int64),  # how many samples others have is not told
            problem=facts["problem"],
            vocabulary=facts["vocabulary"],
            fields=fields,
            class_weights=tuple(facts["class_weights"]),
        )

    def _known(self, run: str) -> Member | None:
        """The node in a run it has joined, by an earlier process perhaps: what is on the disk holds."""
        memory = run_memory(self.owner.folder, run)
        if not memory.joined:
            return None
        if run not in self._members or self._members[run][0] != memory.invitation:
            try:
                asked, initial = memory.told()
                self._keep(run, self._member(asked, initial, memory))
            except (AccordError, KeyError):
                log.warning("what is kept of run %s cannot be used; the server is asked again", run[:8])
                return None
        return self._members[run][1]

    def _keep(self, run: str, member: Member) -> None:
        """For the next message; of earlier runs only the last one, as every one has a network."""
        self._members.pop(run, None)
        for old in list(self._members)[: 1 - MOST_MEMBERS]:
            del self._members[old]
        self._members[run] = member.memory.invitation, member

    def _task(self, header: str, enclosures: Mapping[str, bytes]) -> Letter:
        asked = read_header(header, protocol.TASK_ASKED, "the task")
        said = {name: asked[name] for name in ("run", "hash", "client", "task", "version")}
        said |= {"memory": None, "status": "done", "why": "", "diverged": False}
        member = self._known(asked["run"])
        if member is None:
            return Letter(said | {"status": "unknown", "why": "this site has not joined the run"})
        try:
            return self._carried_out(member, asked, enclosures, said)
        except LostError as error:
            return _failed(said, str(error), "lost")
        except DivergedError as error:
            return _failed(said | {"diverged": True}, str(error))
        except AccordError as error:
            return _failed(said, str(error))
        except Exception:  # a task's own failure is this client's, and the server is told
            return _failed(said, traceback.format_exc())

    def _carried_out(
        self, member: Member, asked: Mapping[str, Any], enclosures: Mapping[str, bytes], said: dict[str, Any]
    ) -> Letter:
        """begin, steps, finish; the new memory on the disk before anything is said."""
        name, client = asked["task"], asked["client"]
        if (asked["hash"], client) != (member.hash, member.home.client):
            raise DataError("the server asks for another configuration or client than this site joined as")
        if name not in member.algorithm.tasks:
            known = ", ".join(member.algorithm.tasks)
            raise DataError(f"{member.method} has no task {shown(name)}; it has {known}")
        shared, private = (self._read(member, name, part, enclosures.get(part)) for part in ENCLOSED[TASK])
        base = asked["base"]
        memory = None if base is None else member.memory.memory(tuple(base[0]), base[1])
        task = member.algorithm.tasks[name]
        request = Request(name, asked["round"], float(asked["lr"]), shared, ())
        before = None if memory is None else to_device(memory, self.device)
        with numerics(member.config.precision), one_thread():
            home = member.bench if name == "evaluate" else member.home
            work = Work(client, private, before)
            result = run_client(home, task, request, work)
        version: tuple[int, int] = (asked["version"][0], asked["version"][1])
        draws = noise_key(self.owner.secret(), asked["run"], name, version)
        leaving = self.consent.leaves(member.method, name, declared(task), result, shared, draws)
        leaving = member.filters.outgoing(name, request, work, leaving, home.draws(client, name, asked["round"]))
        if asked["keeps"]:
            kept = ordered_trees({**(memory or {}), **to_device(leaving.memory, torch.device("cpu"))})
            if kept or memory is not None:
                said["memory"] = [list(version), member.memory.remember(version, kept)]
            member.memory.prune([version, *(tuple(v) for v in asked["needed"]), *([tuple(base[0])] if base else [])])
        reply = {"metrics": encode({"metrics": leaving.metrics})}
        if asked["sends"]:
            reply["reply"] = encode(leaving.reply)
        return Letter(said, reply)

    def _read(self, member: Member, task: str, part: str, data: bytes | None) -> Trees:
        """Trees of the server's: finite, of the form they always had, the model's as this site's own model is."""
        if data is None:
            return {}
        trees = decode(data, limits=Limits(self.owner.largest), finite=True)
        _check_model(trees, member)
        member.memory.check_form(task, part, trees)
        return to_device(trees, self.device)


def _budget(config: RunConfig, setup: Setup) -> Budget | None:
    """The noise the server names; what it comes to in all is counted there."""
    if config.privacy.name == "none":
        return None
    protection = PROTECTIONS[config.privacy.name](**config.privacy.options)
    return Budget(config.privacy.name, protection, Draw.of(setup.sampler, setup.num_clients), ())


def _check_model(trees: Trees, member: Member) -> None:
    """Where a message has the model, its tensors are the network's own."""
    model = getattr(member.algorithm, "model", None)
    if model is None:
        return
    params, buffers = model.init()
    own: dict[str, Mapping[str, Spec]] = dict(spec_of({"model": params, "buffers": buffers}))
    for name in own.keys() & trees.keys():
        found = spec_of({name: trees[name]})[name]
        check_expected({name: found}, {name: {leaf: own[name].get(leaf, spec) for leaf, spec in found.items()}})
        if found.keys() - own[name].keys():
            raise DataError(f"the tree {name} has tensors that the network has not")


def _failed(said: Mapping[str, Any], why: str, status: str = "failed") -> Letter:
    return Letter({**said, "status": status, "why": shortened(why)})
