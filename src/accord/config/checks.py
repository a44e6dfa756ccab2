"""Settings that are fine alone and wrong together. Each check names the keys it looks at; one that is already
known to be wrong is not complained about twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from accord.config import catalog
from accord.config.sections import Problems
from accord.settings import cut

if TYPE_CHECKING:
    from accord.config.tree import RunConfig

Check = Callable[["RunConfig"], str]  # what is wrong, or nothing
CHECKS: list[tuple[tuple[str, ...], Check]] = []

_OF_EACH_ANSWER = ("drift", "local_on_global", "local_view")  # measures that read every client's own answer
FOLDER_NAME = re.compile(r"[\w+=,@-][\w.+=,@-]*")
LONGEST_NAME = 200  # bytes; file systems take 255, and temporary files need some of them


def check_together(config: RunConfig, problems: Problems) -> None:
    """Run every check whose keys are fine by themselves."""
    for keys, check in CHECKS:
        if not problems.keys.intersection(keys):
            message = check(config)
            if message:
                problems.add(keys[0], message)


def _on(*keys: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CHECKS.append((keys, check))
        return check

    return register


@_on("name")
def _name_is_a_folder(config: RunConfig) -> str:
    fits = len(config.name.encode()) <= LONGEST_NAME and FOLDER_NAME.fullmatch(config.name)
    if not config.name or fits:
        return ""
    return (
        f"name = {cut(config.name)!r}: must be a plain folder name of letters, digits and . _ - + = , @ "
        "(at most 200 bytes, not starting with a dot); the folder above it is set with out"
    )


@_on("out")
def _out_is_given(config: RunConfig) -> str:
    return "" if config.out.strip() else "out is empty: name a folder, such as runs"


@_on("executor", "device")
def _executor_runs_on_the_device(config: RunConfig) -> str:
    executors = catalog.registry("executor") if config.device != "auto" else {}
    if config.executor not in executors or config.device in executors[config.executor].devices:
        return ""
    allowed = " or ".join(f"'{kind}'" for kind in executors[config.executor].devices)
    return (
        f"executor = '{config.executor}' does not run on device = '{config.device}': use device = {allowed}, "
        "or executor = 'auto'"
    )


@_on("partial_sums", "executor", "privacy", "compress", "attack", "evaluate")
def _sums_are_all_that_is_read(config: RunConfig) -> str:
    if not config.partial_sums:
        return ""
    said = f"partial_sums = {config.partial_sums}"
    if config.executor != "ray":
        return f"{said} is for executor = 'ray', not {config.executor!r}: set it to 0"
    each = {
        "privacy": config.privacy.name != "none",
        "compress": config.compress.keep < 1 or config.compress.bits < 32,
        "attack": config.attack.name != "none",
        **{
            f"evaluate.{name}": bool(config.evaluate.options.get(name))
            for name in ("drift", "local_on_global", "local_view")
        },
    }
    asked = " and ".join(name for name, on in each.items() if on)
    return f"{said} sends no client's own answer, which {asked} would read: set it to 0" if asked else ""


@_on("partition.unseen", "partition.clients")
def _someone_trains(config: RunConfig) -> str:
    unseen, clients = config.partition.unseen, config.partition.clients
    if unseen < clients or not clients:
        return ""
    return f"partition.unseen = {unseen} leaves nobody to train: must be below partition.clients = {clients}"


@_on("clients.count", "partition.clients", "partition.unseen")
def _cohort_fits(config: RunConfig) -> str:
    available = config.partition.clients - config.partition.unseen  # below 1: open, or complained about above
    if config.clients.count <= available or available < 1:
        return ""
    return (
        f"clients.count = {config.clients.count} is more than the {available} clients that train "
        "(partition.clients without partition.unseen): lower it, or raise partition.clients"
    )


@_on("clients.minimum", "clients.count", "clients.fraction", "partition.clients", "partition.unseen")
def _minimum_fits(config: RunConfig) -> str:
    cohort = config.clients.cohort(max(config.partition.clients - config.partition.unseen, 1))
    if config.clients.minimum <= cohort or not config.partition.clients:
        return ""
    return (
        f"clients.minimum = {config.clients.minimum} can never be met: {cohort} clients are asked a round; "
        "lower it, or raise clients.count or clients.fraction"
    )


@_on("clients.over", "pace")
def _somebody_comes_first(config: RunConfig) -> str:
    if not config.clients.over or config.pace.used:
        return ""
    return (
        f"clients.over = {config.clients.over} asks more clients than a round waits for, and without [pace] all of "
        "them come at the same time: set pace.step and pace.speed, or clients.over to 0"
    )


@_on("pace.intervals", "pace.presence")
def _intervals_are_used(config: RunConfig) -> str:
    if not config.pace.intervals or config.pace.presence == "trace":
        return ""
    return f"pace.intervals is not read with pace.presence = '{config.pace.presence}': set it to trace"


@_on("partition.holdout", "partition.validation", "partition.test")
def _something_is_left_to_train_on(config: RunConfig) -> str:
    partition = config.partition
    kept = partition.validation + (partition.holdout if partition.test == "holdout" else 0.0)
    if kept < 1:
        return ""
    return (
        f"partition.holdout = {partition.holdout} and partition.validation = {partition.validation} "
        "leave no training data: together they must be below 1"
    )


@_on("local.nesterov", "local.momentum")
def _nesterov_needs_momentum(config: RunConfig) -> str:
    if config.local.nesterov and config.local.momentum == 0:
        return "local.nesterov needs momentum: set local.momentum above 0, or local.nesterov to false"
    return ""


@_on("local.momentum", "local.optimizer")
def _momentum_needs_sgd(config: RunConfig) -> str:
    if config.local.momentum and config.local.optimizer != "sgd":
        return (
            f"local.momentum = {config.local.momentum} is not used by local.optimizer = "
            f"'{config.local.optimizer}': set it to 0 (adam has local.betas), or the optimizer to sgd"
        )
    return ""


@_on("local.optimizer_state", "local.optimizer", "local.momentum")
def _there_is_a_state_to_keep(config: RunConfig) -> str:
    local = config.local
    if local.optimizer_state == "kept" and local.optimizer == "sgd" and local.momentum == 0:
        return (
            "local.optimizer_state = 'kept' keeps nothing: sgd without momentum has no state; set local.momentum "
            "above 0, or optimizer_state to fresh"
        )
    return ""


@_on("local.min_lr", "local.lr")
def _schedule_goes_down(config: RunConfig) -> str:
    if config.local.min_lr <= config.local.lr:
        return ""
    return f"local.min_lr = {config.local.min_lr} must be at most local.lr = {config.local.lr}"


@_on("evaluate.split", "partition.validation")
def _validation_data_exists(config: RunConfig) -> str:
    if config.evaluate.split == "validation" and not config.partition.validation:
        return "evaluate.split = 'validation' needs validation data: set partition.validation above 0, such as 0.1"
    return ""


@_on("partition.test", "partition.name")
def _natural_tests_need_natural_clients(config: RunConfig) -> str:
    if config.partition.test == "natural" and config.partition.name not in ("natural", "auto"):
        return (
            f"partition.test = 'natural' does not fit partition.name = '{config.partition.name}': "
            "use matching, holdout or shared, or the natural partition"
        )
    return ""
