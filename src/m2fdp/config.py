"""The configuration of one run: every key a user may set, its type, range and default.

`Config` is the root; each block is also the type of the Kedro parameter of that name.
Keys read like the papers' (J Sec. II-VI). Unknown keys are errors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from m2fdp.errors import InputError


def _no_bool(value: Any) -> Any:
    """YAML reads `yes` and `on` as true, which Python would count as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


# Products of some of them must still be numbers in float32.
_SMALLEST, _LARGEST = 1e-9, 1e9
# Every step of a run is planned before the first.
_MOST_STEPS = 10_000_000

Probability = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=1)]
Positive = Annotated[
    float, BeforeValidator(_no_bool), Field(gt=0), Field(ge=_SMALLEST, le=_LARGEST)
]
NonNegative = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=_LARGEST)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=int(_LARGEST))]
Decibel = Annotated[float, BeforeValidator(_no_bool), Field(ge=-300, le=300)]

# Keys that no result depends on: where files go, how learners are spread over threads and memory,
# and how a run outlives an interruption.
INCIDENTAL = frozenset(
    {"cell", "threads", "resume", "training.checkpoint_every", "training.chunk_size"}
)
# Other keys that no release depends on: what is measured of it, and where the records come from.
UNRELEASED = frozenset(
    {"training.evaluate_every", "training.evaluate_on", "dataset.root", "dataset.download"}
)


def _split_bars(value: Any) -> Any:
    """Lists of several elements arrive from `--params` as `0.5|1.0`."""
    if isinstance(value, str):
        return value.split("|")
    return [value] if isinstance(value, (int, float)) else value


class Block(BaseModel):
    """A frozen block of configuration that refuses keys it does not know, infinities and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DatasetConfig(Block):
    """Which data set, and where its files are."""

    name: Literal[
        "digits", "fashion_mnist", "mnist", "emnist_letters", "cifar10", "cifar100", "npz"
    ] = "digits"
    # For `npz` the file itself, else the folder in torchvision's layout.
    root: str = "data/01_raw"
    download: bool = False


class PartitionConfig(Block):
    """How the training records are dealt to the devices (J Sec. VI-A)."""

    scheme: Literal["labels_per_device", "dirichlet", "quantity", "iid"] = "labels_per_device"
    labels_per_device: Count = 3
    # Concentration of the Dirichlet law over labels (`dirichlet`) or shard sizes (`quantity`).
    alpha: Positive = 0.5
    level: Literal["device", "edge"] = "device"
    samples_per_device: Count | None = None
    # Share of the training records that the cloud keeps for choosing schedules.
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0


class TrustConfig(Block):
    """Which servers are trusted: shares per layer, or the untrusted ones by name (J eq. 4)."""

    ratios: Annotated[list[Probability], BeforeValidator(_split_bars)] | None = None
    untrusted: Annotated[list[str], BeforeValidator(_split_bars)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> TrustConfig:
        if self.ratios is not None and self.untrusted is not None:
            raise ValueError("give ratios or untrusted, not both")
        return self


class TopologyConfig(Block):
    """The tree: fan-outs from the cloud down, or a file with one `parent,child` edge a line."""

    fanouts: Annotated[list[Count], BeforeValidator(_split_bars), Field(min_length=1)] | None = None
    edges: str | None = None
    trust: TrustConfig = TrustConfig()

    @model_validator(mode="after")
    def _some_tree(self) -> TopologyConfig:
        if self.fanouts is None and self.edges is None:
            raise ValueError("give fanouts (such as 10|5) or edges (a file)")
        return self


class ModelConfig(Block):
    """What is trained."""

    name: str = "softmax"
    # `svm`: which multi-class hinge.
    hinge: Literal["one_vs_rest", "crammer_singer"] = "one_vs_rest"
    # `cnn12`: output channels of its three convolutions; absent = those that give M = 7840.
    channels: (
        Annotated[
            list[Annotated[Count, Field(le=4096)]],
            BeforeValidator(_split_bars),
            Field(min_length=3, max_length=3),
        ]
        | None
    ) = None


class TrainingConfig(Block):
    """The schedule of J Algorithm 1."""

    rounds: Count  # T
    local_steps: Count  # K
    # {layer l: a local aggregation up to l every so many local steps}
    local_aggregation: dict[int, Count] = Field(default_factory=dict)
    # s_c: devices of each lowest server that take part in a round, drawn uniformly; null = all.
    participants: Count | None = None
    # Expected size B of a Poisson-sampled minibatch; null = the whole shard.
    batch_size: Positive | None = None
    learning_rate: Positive
    # `constant`: eta^t = gamma. `inverse_sqrt`: eta^t = gamma / sqrt(t + 1) (J Thm 1).
    step_size: Literal["constant", "inverse_sqrt"] = "constant"
    evaluate_every: Count = 1
    evaluate_on: Literal["test", "validation"] = "test"
    # Rounds between two checkpoints, which `resume` goes on from; null = none.
    checkpoint_every: Count | None = 10
    backend: Literal["auto", "reference", "sequential", "stacked"] = "auto"
    # Learners stepped at a time; never changes a result. null = as many as fit the cache.
    chunk_size: Count | None = None

    @model_validator(mode="after")
    def _plannable(self) -> TrainingConfig:
        if (steps := self.rounds * self.local_steps) > _MOST_STEPS:
            raise ValueError(f"rounds x local_steps = {steps:,} is more than {_MOST_STEPS:,}")
        return self

    @field_validator("local_aggregation", mode="before")
    @classmethod
    def _null_clears(cls, value: Any) -> Any:
        """Overlays and `--params` can only overwrite a key, so null means none."""
        if value is None:
            return {}
        if isinstance(value, dict):
            # The command line's keys are texts, a file's are numbers: the later one counts.
            by_layer = {str(layer): every for layer, every in value.items()}
            return {layer: every for layer, every in by_layer.items() if every is not None}
        return value


class PrivacyConfig(Block):
    """The mechanism, its calibration and the target (J Sec. III-C)."""

    mechanism: Literal["gradient", "upload"] = "gradient"
    calibration: Literal["accountant", "paper"] = "accountant"
    alpha: Positive = 1.0  # alpha_l of J Prop. 1, for `calibration: paper`
    epsilon: Annotated[Positive, Field(le=1e6)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    # G of J Assumption 2 (`upload`), C per record (`gradient`), or per device (`unit: device`)
    clipping_norm: Positive
    adjacency: Literal["add_remove", "zero_out", "replace_one"] = "add_remove"
    unit: Literal["record", "device"] = "record"
    # `upload`: how two runs that differ may part; see docs/privacy.md.
    drift: Literal["worst_case", "smooth", "non_expansive"] = "worst_case"
    smoothness: Positive | None = None  # beta, declared, for `drift: smooth`
    # `upload`: trusted servers noise what they broadcast after a local aggregation.
    downlink_noise: bool = False
    # Training ends before the round that would pass this verified epsilon.
    budget: Positive | None = None
    # Draws noise, minibatches and participants from the operating system's entropy instead of the
    # seed: no run repeats, and one that is resumed goes on with other draws.
    secure_rng: bool = False

    @model_validator(mode="after")
    def _defined(self) -> PrivacyConfig:
        for wrong, message in (
            (
                self.mechanism == "gradient" and self.calibration == "paper",
                "calibration: paper is not defined for mechanism: gradient; use accountant",
            ),
            (
                self.mechanism == "gradient" and self.drift != "worst_case",
                "drift belongs to mechanism: upload; with noise at every step there is none",
            ),
            (
                self.mechanism == "gradient" and self.downlink_noise,
                "downlink_noise belongs to mechanism: upload; under gradient all is noised",
            ),
            (
                (self.drift == "smooth") != (self.smoothness is not None),
                "smoothness (beta) and drift: smooth belong together",
            ),
            (
                self.unit == "device" and self.drift != "worst_case",
                "unit: device clips whole updates and needs no drift; use drift: worst_case",
            ),
            (
                self.adjacency == "replace_one"
                and (self.mechanism == "upload" or self.unit == "device"),
                "adjacency: replace_one is proven for mechanism: gradient with unit: record only; "
                "use add_remove",
            ),
            (
                self.calibration == "paper"
                and (self.unit == "device" or self.drift == "non_expansive" or self.downlink_noise),
                "calibration: paper knows records, clipped minibatches and uplinks only",
            ),
        ):
            if wrong:
                raise ValueError(message)
        return self


class ThreatConfig(Block):
    """Who must not learn more than the target; everybody else is only reported."""

    distrusted: Annotated[
        list[Literal["servers", "cloud", "siblings", "cousins", "far_devices", "public"]],
        BeforeValidator(_split_bars),
        Field(min_length=1),
    ] = ["servers", "cloud"]
    # Links on which somebody listens.
    open_links: Annotated[list[Literal["uplinks", "downlinks"]], BeforeValidator(_split_bars)] = []


class AuditConfig(Block):
    """How `kedro run --pipelines=audit` tests the promise."""

    # Of each world, with and without the canary.
    repetitions: Annotated[Count, Field(ge=20, le=1_000_000)] = 1000
    # At most so many of the run's rounds; null = all.
    rounds: Count | None = None
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


class ResourcesConfig(Block):
    """Powers, rates and costs of the energy and delay model (J Sec. VI-A)."""

    wireless_power_dbm: Decibel = 24.0
    wireless_rate_mbps: Positive = 35.0
    wired_power_dbm: Decibel = 38.0
    wired_rate_mbps: Positive = 100.0
    bits_per_parameter: Count = 32
    step_delay_s: NonNegative = 0.2
    step_energy_j: NonNegative = 1e-3
    # Whether the children of one server transmit in turn (J's Gamma) or at once.
    uplinks: Literal["sequential", "parallel"] = "sequential"


class ControlConfig(Block):
    """The adaptive controller (J Sec. V)."""

    enabled: bool = False
    # Weights of energy, delay and stationarity gap, each over its value in the first round.
    alpha_1: NonNegative = 1.0
    alpha_2: NonNegative = 1.0
    alpha_3: NonNegative = 1.0
    # tau, local steps of the whole run; null = training.rounds * training.local_steps.
    tau: Count | None = None
    # beta, declared; null = estimated every round from the devices' gradients, a release.
    smoothness: Positive | None = None
    max_local_steps: Annotated[Count, Field(le=10_000)] = 40  # K^max
    step_size_factor: Positive = 1.0  # c of gamma^t = c min(1/K, 1/tau)/beta; 1 is J's
    initial_local_steps: Count = 5  # K^1

    @model_validator(mode="after")
    def _solvable(self) -> ControlConfig:
        if not self.alpha_1 + self.alpha_2 + self.alpha_3:
            raise ValueError("one of alpha_1, alpha_2 and alpha_3 must be positive")
        if self.initial_local_steps > self.max_local_steps:
            raise ValueError("initial_local_steps must not pass max_local_steps")
        return self


class Config(Block):
    """Everything that defines one run."""

    algorithm: str
    seed: Annotated[int, BeforeValidator(_no_bool), Field(ge=0)] = 0
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    # Processes, of one thread each, that share a run's steps; null = one a core. Never changes a
    # result.
    threads: Count | None = None
    # Names the folders that the run writes to, so that runs side by side never collide.
    cell: Annotated[str, Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", max_length=200)] = "single"
    # Go on with the cell's last run from its newest checkpoint.
    resume: bool = False
    dataset: DatasetConfig
    partition: PartitionConfig
    topology: TopologyConfig
    model: ModelConfig
    training: TrainingConfig
    privacy: PrivacyConfig
    threat: ThreatConfig = ThreatConfig()
    resources: ResourcesConfig
    audit: AuditConfig = AuditConfig()
    control: ControlConfig = ControlConfig()

    @model_validator(mode="after")
    def _validation_records(self) -> Config:
        if self.training.evaluate_on == "validation" and not self.partition.validation_fraction:
            raise ValueError(
                "training.evaluate_on: validation needs partition.validation_fraction > 0"
            )
        return self


def parse_config(parameters: dict[str, Any]) -> Config:
    """Validate nested parameters into a `Config`.

    Raises:
        InputError: naming the first offending key, its value and what would be valid.
    """
    try:
        return Config.model_validate(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if _is_key(part)) or "parameters"
        if first["type"] == "extra_forbidden":
            raise InputError(key, first["input"], _known_keys(first["loc"][:-1])) from None
        value = "(missing)" if first["type"] == "missing" else first["input"]
        if isinstance(value, dict) and first["type"] == "value_error":
            value = "(block)"
        raise InputError(key, value, first["msg"].removeprefix("Value error, ")) from None


def essentials(config: Config) -> dict[str, Any]:
    """All that a result depends on, as plain values by dotted key."""
    flat = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if key not in INCIDENTAL}


def released(config: Config) -> dict[str, Any]:
    """All that a release depends on besides the records: what noise is keyed by, with them.

    In two runs that differ here every noise differs. Only what can't change a release is left
    out: how often and on what a model is evaluated, what an audit repeats, the place of the
    records' files, and, unless a controller decides by them, energies and delays. In doubt a key
    stays in: two releases with noise of their own compose; with shared noise they protect nothing.
    """
    audit_or_costs = ("audit.",) if config.control.enabled else ("audit.", "resources.", "control.")
    return {
        key: value
        for key, value in essentials(config).items()
        if key not in UNRELEASED and not key.startswith(audit_or_costs)
    }


def _is_key(part: object) -> bool:
    """Pydantic puts the branch of a union into `loc`; users know only their own keys."""
    return isinstance(part, int) or "[" not in str(part)


def _known_keys(location: tuple[int | str, ...]) -> str:
    block: type[BaseModel] = Config
    for part in location:
        block = block.model_fields[str(part)].annotation  # type: ignore[assignment]
    return "unknown key; valid keys are " + ", ".join(sorted(block.model_fields))


def flatten(parameters: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters as one level of dotted keys; empty blocks stay, as themselves."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
