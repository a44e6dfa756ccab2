"""FedUFO's settings as one value, what they come to in a federation, and which of them do not go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import accord.authoring as fl
from accord.algorithms.fedufo.alignment import DiscClasses, DiscHome, DiscTrain
from accord.algorithms.fedufo.consensus import KLDirection, KLReduction
from accord.algorithms.fedufo.peers import GroupTarget, Reads, width

Terms = Literal["cls", "cgr", "cgl", "uad", "uad+cgr", "uad+cgl", "all"]

NO_FEATURES: dict[Reads, str] = {
    "features": "UAD reads the model's features, and this model does not say which layer gives them: wrap it with "
    'accord.models.adapt(module, head="..."), or set terms to cgr, cgl or cls',
    "maps": "disc_reads = 'maps' wants feature maps of shape (channels, height, width), and this model has none: "
    "choose a convolutional one, name your own one's maps to accord.models.adapt, or set disc_reads to 'features'",
}
NO_GROUP = (
    "UAD and CGR compare the clients of a round, so at least two must take part: raise clients.count or "
    "clients.fraction, or set terms to cgl or cls"
)
NO_PRIOR = "start = 'prior' needs UAD or CGR, which train a prior: set start to 'global', or other terms"
NOT_FRESH = (
    "disc_classes = 'group' numbers D's outputs by position in the round's group, so a D kept over rounds "
    "would mix up clients: set disc_home to 'fresh', or disc_classes to 'all'"
)
NO_CGL = "dynamic sampling goes with the CGL loss only: set dynamic to false, or terms to one with cgl"
NOT_DYNAMIC = "performance_share holds samples out for dynamic sampling only: set dynamic to true, or the share to 0"
NO_STAGE_TWO = "stage_one_rounds must be below rounds, or CGR and CGL never act: lower it, or use feduad"


@dataclass(frozen=True, kw_only=True)
class ConsensusSettings:
    """Which terms there are, when, and how predictions are compared."""

    terms: Annotated[Terms, "losses beside the classification loss"] = "all"
    dynamic: Annotated[bool | None, "half of the clients are the worst; none: only with all terms"] = None
    stage_one_rounds: Annotated[int | None, fl.AtLeast(0), "rounds before CGR and CGL; none: half, or 0"] = None
    cgr_weight: Annotated[float, fl.AtLeast(0), fl.Search(0.1, 3.0, log=True), "weight of L_cgr"] = 1.0
    cgl_weight: Annotated[float, fl.AtLeast(0), fl.Search(choices=(1, 2, 3, 5)), "lambda, weight of L_cgl"] = 3.0
    kl: Annotated[KLDirection, "reverse: KL(ours || target); forward: KL(target || ours)"] = "reverse"
    kl_reduction: Annotated[KLReduction, "KL averaged over batch and classes, or over the batch"] = "mean"
    cgr_target: Annotated[GroupTarget, "how the group's predictions are merged"] = "softmax"
    performance: Annotated[
        Literal["fresh", "stale"], "measured on every client each round, or when a client takes part"
    ] = "stale"
    performance_share: Annotated[
        float,
        fl.Range(low=0, below=1),
        "share of a client's samples to measure on and never train on; 0: all are both",
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class AlignmentSettings:
    """The discriminator and its weight."""

    uad_weight: Annotated[float, fl.AtLeast(0), fl.Search(0.1, 1.0, log=True), "weight of L_uniform"] = 1.0
    start: Annotated[Literal["global", "prior"], "the posterior starts from the global model or its own prior"] = (
        "global"
    )
    disc_classes: Annotated[DiscClasses, "outputs of D: one per client, or per member of the group"] = "all"
    disc_home: Annotated[DiscHome, "D is averaged by the server, kept by the client, drawn each round"] = "server"
    disc_train: Annotated[DiscTrain, "D learns after the posterior, or one step after each of the model's"] = "round"
    disc_layers: Annotated[int, fl.AtLeast(1), "linear layers of D (the paper: 2, for ResNet-50 3)"] = 2
    disc_hidden: Annotated[int, fl.AtLeast(0), "width of D's hidden layers (the report: 200); 0: of its input"] = 0
    disc_reads: Annotated[Reads, "what D is shown: the features, or the flattened maps (the report)"] = "features"
    disc_lr: Annotated[
        float, fl.AtLeast(0), fl.Search(1e-3, 1.0, log=True), "D's learning rate, times the local one"
    ] = 0.01
    disc_momentum: Annotated[float, fl.Range(low=0, below=1), "D's momentum"] = 0.9
    disc_epochs: Annotated[int, fl.AtLeast(0), "D's epochs per round (disc_train = round)"] = 1


@dataclass(frozen=True, kw_only=True)
class Settings(AlignmentSettings, ConsensusSettings):
    """All of FedUFO's."""


@dataclass(frozen=True, kw_only=True)
class Readings(Settings):
    """The settings, and what they come to in one federation: a term of weight 0 is off, what was left open is set."""

    dynamic: bool
    uad: bool
    cgr: bool
    cgl: bool
    stage_two: int  # its first round

    @property
    def grouped(self) -> bool:
        """Whether the clients of a round are told of one another."""
        return self.uad or self.cgr

    @property
    def fresh(self) -> bool:
        """Whether every client is measured before a round."""
        return self.dynamic and self.performance == "fresh"


def read(setup: fl.Setup, given: Settings) -> Readings:
    """The readings, or a ConfigError."""
    chosen = ("uad", "cgr", "cgl") if given.terms == "all" else given.terms.split("+")
    uad, cgr, cgl = (
        name in chosen and weight > 0
        for name, weight in (("uad", given.uad_weight), ("cgr", given.cgr_weight), ("cgl", given.cgl_weight))
    )
    staged = setup.rounds // 2 if uad and (cgr or cgl) else 0
    reading = Readings(
        **{
            **vars(given),
            "dynamic": given.terms == "all" and cgl if given.dynamic is None else given.dynamic,
            "uad": uad,
            "cgr": cgr,
            "cgl": cgl,
            "stage_two": staged if given.stage_one_rounds is None else given.stage_one_rounds,
        }
    )
    for wrong, why in _refusals(setup, reading):
        if wrong:
            raise fl.ConfigError(f"algorithm fedufo: {why}")
    return reading


def _refusals(setup: fl.Setup, reading: Readings) -> list[tuple[bool, str]]:
    mixes_up = reading.disc_classes == "group" and reading.disc_home != "fresh"
    return [
        (reading.uad and width(setup.model, reading.disc_reads) == 0, NO_FEATURES[reading.disc_reads]),
        (reading.grouped and setup.sampler.size(setup.num_clients) < 2, NO_GROUP),
        (reading.start == "prior" and not reading.grouped, NO_PRIOR),
        (reading.uad and mixes_up, NOT_FRESH),
        (reading.dynamic and not reading.cgl, NO_CGL),
        (reading.performance_share > 0 and not reading.dynamic, NOT_DYNAMIC),
        ((reading.cgr or reading.cgl) and reading.stage_two >= setup.rounds, NO_STAGE_TWO),
    ]
