"""Every setting of a run: its default, its bounds and its meaning. The defaults are a small demo job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from accord.config import catalog
from accord.config.checks import check_together
from accord.config.sections import Chosen, Gathered, Problems, as_given, read
from accord.settings import FRACTION, NOT_NEGATIVE, POSITIVE, PROPER_FRACTION, AtLeast, Named, Range, Search

Options = Mapping[str, Any]


@dataclass(frozen=True)
class DataConfig(Chosen):
    """Which data set, and where it lies."""

    kind: ClassVar[str] = "dataset"
    implied: ClassVar[Mapping[str, str]] = {"label": "table"}
    name: Annotated[str, "the data set; `accord list datasets`"] = "mnist5k"
    dir: Annotated[str, "folder with the data files; empty: the ACCORD_DATA folder or the user's cache"] = ""
    download: Annotated[bool, "fetch missing files"] = True
    normalise: Annotated[bool, "subtract the mean and divide by the deviation of each channel"] = True
    limit: Annotated[int, NOT_NEGATIVE, "use only this many training samples; 0: all"] = 0
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionConfig(Chosen):
    """How the data is divided among clients."""

    kind: ClassVar[str] = "partition"
    unsaid: ClassVar[str] = "auto"
    implied: ClassVar[Mapping[str, str]] = dict.fromkeys(("alpha", "min_size", "balance"), "dirichlet")
    name: Annotated[
        str, "how to divide the data; `accord list partitions`; auto: by the clients it names, else dirichlet"
    ] = "auto"
    clients: Annotated[int, NOT_NEGATIVE, "how many clients; 0: as many as the data names, else 20"] = 0
    test: Annotated[
        Literal["auto", "matching", "holdout", "shared", "natural"],
        "a client's test data: of its classes, held out of its own, the whole test set, or as the data says; auto: as "
        "the data says, held out where it names clients for training only, else matching",
    ] = "auto"
    holdout: Annotated[float, PROPER_FRACTION, "share of a client's data, when test is holdout"] = 0.25
    validation: Annotated[float, PROPER_FRACTION, "share of a client's train data kept for validation"] = 0.0
    unseen: Annotated[int, NOT_NEGATIVE, "clients that never train, for judging the model on newcomers"] = 0
    seed: Annotated[int, AtLeast(-1), "seed of the division; -1: the run's seed"] = -1
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class TransformConfig(Chosen):
    """How each client's inputs are changed."""

    kind: ClassVar[str] = "transform"
    name: Annotated[str, "change of each client's inputs; `accord list transforms`"] = "none"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig(Chosen):
    """Which network."""

    kind: ClassVar[str] = "model"
    name: Annotated[str, "the network; `accord list models`"] = "2nn"
    init: Annotated[
        str, Named("initialisation"), "how its weights are drawn: as torch's layers do, or as other frameworks do"
    ] = "torch"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class AlgorithmConfig(Chosen):
    """Which federated method."""

    kind: ClassVar[str] = "algorithm"
    implied: ClassVar[Mapping[str, str]] = {"parts": "compose"}
    name: Annotated[str, "the federated method; `accord list algorithms`"] = "fedavg"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class LocalConfig:
    """What a client does in one round."""

    epochs: Annotated[int, AtLeast(1), "passes over a client's data in a round"] = 1
    steps: Annotated[int, NOT_NEGATIVE, "batches in a round instead of epochs; 0: use epochs"] = 0
    batch_size: Annotated[int, NOT_NEGATIVE, "samples in a batch; 0: all of a client's data"] = 32
    last_batch: Annotated[
        Literal["auto", "fill", "drop", "pad"],
        "a short last batch: top it up, leave it out, or keep it; auto: fill with batch norm, else pad",
    ] = "auto"
    optimizer: Annotated[str, Named("optimizer"), "how the model is moved along a gradient"] = "sgd"
    optimizer_state: Annotated[
        Literal["fresh", "kept"], "momentum and moments: new in every round, or kept by the client over rounds"
    ] = "fresh"
    lr: Annotated[float, POSITIVE, Search(0.005, 0.5, log=True), "learning rate in the first round"] = 0.05
    momentum: Annotated[float, PROPER_FRACTION, "momentum of sgd"] = 0.0
    nesterov: Annotated[bool, "Nesterov's form of momentum"] = False
    weight_decay: Annotated[float, NOT_NEGATIVE, "weight decay; decoupled with adamw"] = 0.0
    betas: Annotated[tuple[float, float], PROPER_FRACTION, "decay factors of adam"] = (0.9, 0.999)
    eps: Annotated[float, POSITIVE, "added to the denominator of adam"] = 1e-8
    schedule: Annotated[
        str,
        Named("schedule"),
        "learning rate over rounds; exponential and step multiply by decay, cosine goes down to min_lr",
    ] = "constant"
    decay: Annotated[float, Range(above=0, high=1), "factor of the exponential and step schedules"] = 0.99
    decay_every: Annotated[int, AtLeast(1), "rounds between two decays of the step schedule"] = 1
    min_lr: Annotated[float, NOT_NEGATIVE, "the learning rate never falls below this"] = 0.0
    clip: Annotated[float, NOT_NEGATIVE, "largest global norm of a gradient; 0: no clipping"] = 0.0
    class_weights: Annotated[
        Literal["none", "balanced"] | tuple[float, ...],
        "weights in the training loss: balanced: rare classes count as much as frequent ones; or a number per class",
    ] = "none"


@dataclass(frozen=True)
class ClientsConfig:
    """Who takes part in a round."""

    fraction: Annotated[float, Range(above=0, high=1), "share of the clients asked in a round"] = 0.5
    count: Annotated[int, NOT_NEGATIVE, "number of clients asked in a round; 0: use fraction"] = 0
    sampler: Annotated[str, Named("sampler"), "who is asked: anyone, by data size, or one after another"] = "uniform"
    minimum: Annotated[int, AtLeast(1), "fewest answers that make a round"] = 1
    tolerate: Annotated[float, FRACTION, "share of those asked that may fail before the run ends"] = 0.0
    drop_rate: Annotated[float, PROPER_FRACTION, "simulated chance that a client does not answer"] = 0.0
    over: Annotated[
        float, NOT_NEGATIVE, "share asked beyond that; the first to come by the clock of [pace] make the round"
    ] = 0.0

    def cohort(self, available: int) -> int:
        """How many of `available` clients make a round; halves are rounded up, one is the least."""
        return self.count or max(1, int(self.fraction * available + 0.5))

    def asked(self, available: int) -> int:
        """How many of them are asked: the cohort, and those asked beyond it, as far as there are any."""
        cohort = self.cohort(available)
        return max(cohort, min(available, int(cohort * (1 + self.over) + 0.5))) if self.over else cohort


@dataclass(frozen=True)
class PaceConfig:
    """How long clients take and when they are there, in a simulated clock; without a setting there is no clock."""

    step: Annotated[float, NOT_NEGATIVE, "seconds a step takes, times the client's factor"] = 0.0
    speed: Annotated[str, Named("distribution"), "how these factors are spread; one of 2 takes twice as long"] = (
        "constant"
    )
    spread: Annotated[float, NOT_NEGATIVE, "how far they lie apart; see the distribution"] = 0.5
    mbit: Annotated[float, NOT_NEGATIVE, "megabits per second from and to a client; 0: sending takes no time"] = 0.0
    network: Annotated[str, Named("distribution"), "how the factors are spread by which sending takes longer"] = (
        "constant"
    )
    network_spread: Annotated[float, NOT_NEGATIVE, "how far they lie apart"] = 0.5
    latency: Annotated[float, NOT_NEGATIVE, "seconds that every task takes beside"] = 0.0
    devices: Annotated[
        str, "CSV file of client and seconds_per_step, mbit or latency, in the place of what is drawn; empty: none"
    ] = ""
    presence: Annotated[str, Named("presence"), "when clients can be asked"] = "always"
    share: Annotated[float, Range(above=0, high=1), "of the rounds (chance) or of a period (daily)"] = 0.5
    period: Annotated[float, POSITIVE, "seconds after which daily and trace begin again"] = 86400.0
    intervals: Annotated[str, "CSV file of client, from, until, for presence = trace"] = ""
    deadline: Annotated[float, NOT_NEGATIVE, "seconds an exchange waits for answers; 0: for all of them"] = 0.0
    wait: Annotated[float, POSITIVE, "seconds that pass in a round in which too few clients are there"] = 60.0

    @property
    def used(self) -> bool:
        """Whether anything of it is set."""
        return self != PaceConfig()


@dataclass(frozen=True)
class AttackConfig(Chosen):
    """Hostile clients, in a simulation."""

    kind: ClassVar[str] = "attack"
    name: Annotated[str, "what hostile clients do; `accord list attacks`"] = "none"
    share: Annotated[float, Range(above=0, high=1), "share of the clients that are hostile, drawn from the seed"] = 0.2
    clients: Annotated[tuple[int, ...], NOT_NEGATIVE, "which ones, by number; empty: a share"] = ()
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class PrivacyConfig(Chosen):
    """What differential privacy promises, and to whom."""

    kind: ClassVar[str] = "protection"
    name: Annotated[
        str, "who is protected: a client from whoever sees the models, or from the server too, or a sample; by noise"
    ] = "none"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class CompressConfig:
    """How clients' answers are made small."""

    keep: Annotated[
        float, Range(above=0, high=1), "share of a model's values that travels up, those that changed most; 1: all"
    ] = 1.0
    bits: Annotated[Literal[8, 32], "bits of a value that travels up; 8: multiples of a step, rounded by chance"] = 32


@dataclass(frozen=True)
class EvaluateConfig(Gathered):
    """What is measured, and how often: beside these, a key for every measure that can be switched."""

    kind: ClassVar[str] = "measure"
    every: Annotated[int, AtLeast(1), "rounds between two evaluations; the last round always has one"] = 1
    split: Annotated[
        Literal["test", "validation"],
        "what is judged on; validation: it takes the place of the test data, which nobody looks at",
    ] = "test"
    batch_size: Annotated[int, AtLeast(1), "samples in one forward pass"] = 512
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept of a run: so that it can go on when it was stopped, and of the clients' own models at its end."""

    every: Annotated[int, NOT_NEGATIVE, "rounds between two checkpoints; 0: none"] = 1
    keep: Annotated[int, AtLeast(1), "checkpoints kept"] = 2
    memory_limit_mb: Annotated[int, NOT_NEGATIVE, "clients' memory held in RAM before it goes to disk"] = 1024
    personal_mb: Annotated[
        int, NOT_NEGATIVE, "most that the clients' own models may take together in model/clients; 0: keep none"
    ] = 512


@dataclass(frozen=True)
class LogConfig:
    """Where else the metrics go."""

    tensorboard: Annotated[bool, "write TensorBoard files into the run's folder"] = False
    mlflow: Annotated[bool, "report to MLflow"] = False
    wandb: Annotated[bool, "report to Weights & Biases"] = False


@dataclass(frozen=True)
class FederationConfig:
    """Real nodes on a network: who is waited for, and how long. A simulation reads none of it."""

    sites: Annotated[tuple[str, ...], "the sites' names, also of those that come later; none: whoever answers"] = ()
    nodes: Annotated[int, NOT_NEGATIVE, "sites to wait for before the start; 0: those named, else all connected"] = 0
    gather: Annotated[float, NOT_NEGATIVE, "seconds to wait for them; then those that came begin"] = 60.0
    deadline: Annotated[
        float, POSITIVE, "seconds after which an exchange goes on without the others, if clients.minimum have answered"
    ] = 600.0
    patience: Annotated[
        float, AtLeast(-1), "seconds to wait for the others once clients.minimum have answered; -1: until the deadline"
    ] = -1.0
    largest_message_mb: Annotated[int, AtLeast(1), "a larger answer is dropped"] = 1024
    keys: Annotated[
        str, "folder of SITE.pub, the keys sites' nodes are known by; empty: who comes by a name first has it"
    ] = ""


@dataclass(frozen=True)
class RunConfig:
    """A whole run: complete, every value checked, whether it was read from a file or made in Python."""

    seed: Annotated[int, NOT_NEGATIVE, "everything random in the run follows from it"] = 0
    rounds: Annotated[int, AtLeast(1), "rounds of communication"] = 20
    task: Annotated[
        str,
        Named("task", also=("auto",)),
        "what is learned: a class, several labels, numbers, or a label per position; auto: what the data says",
    ] = "auto"
    name: Annotated[str, "the run's folder below out; empty: made from algorithm, data and seed"] = ""
    out: Annotated[str, "folder for runs"] = "runs"
    device: Annotated[Literal["auto", "cpu", "cuda"], "auto: a GPU if there is one"] = "auto"
    executor: Annotated[
        str,
        Named("executor", also=("auto",)),
        "how clients are run; `accord list executors`; auto: what pays most on the device",
    ] = "auto"
    workers: Annotated[int, NOT_NEGATIVE, "processes or actors of that executor; 0: one per core, or GPU"] = 0
    partial_sums: Annotated[
        int,
        NOT_NEGATIVE,
        "for executor ray: average so many clients' answers where they were trained, and send the mean; 0: send all",
    ] = 0
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"], "of matrix products; tf32 and bf16 are faster on GPUs and less exact"
    ] = "fp32"
    channels_last: Annotated[bool, "lay images out with the channels last, which suits GPU convolutions"] = False
    compile: Annotated[bool, "one compiled step for all clients on a GPU: a slower start, faster steps"] = False
    targets: Annotated[tuple[float, ...], FRACTION, "report the first round that reaches them"] = (
        0.8,
        0.9,
        0.95,
    )
    data: DataConfig = field(default_factory=DataConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    transform: TransformConfig = field(default_factory=TransformConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    clients: ClientsConfig = field(default_factory=ClientsConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    compress: CompressConfig = field(default_factory=CompressConfig)
    pace: PaceConfig = field(default_factory=PaceConfig)
    attack: AttackConfig = field(default_factory=AttackConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)
    problems: InitVar[Problems | None] = None  # of the reader, which has looked at every value by itself

    def __post_init__(self, problems: Problems | None) -> None:
        if problems is not None:
            check_together(self, problems)
            return
        problems = Problems()
        for name, value in read(RunConfig, as_given(self), catalog.registry, problems).items():
            object.__setattr__(self, name, value)
        check_together(self, problems)
        problems.raise_if_any()

    @property
    def partition_seed(self) -> int:
        """The seed of the division: its own, or the run's."""
        return self.seed if self.partition.seed < 0 else self.partition.seed
