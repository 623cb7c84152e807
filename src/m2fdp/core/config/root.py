"""The root of the configuration, and what of it a result or a release depends on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, model_validator

from m2fdp.core.config.costs import ControlConfig, ResourcesConfig
from m2fdp.core.config.data import DatasetConfig, FeaturesConfig, ModelConfig, PartitionConfig
from m2fdp.core.config.execution import DeploymentConfig, ExecutionConfig
from m2fdp.core.config.network import SecureAggregationConfig, TopologyConfig, ZonesConfig
from m2fdp.core.config.privacy import AttackConfig, AuditConfig, PrivacyConfig, ThreatConfig
from m2fdp.core.config.readers import DEPLOYED, OWN_LOSSES, ZONED
from m2fdp.core.config.retired import RETIRED
from m2fdp.core.config.tiers import ClockConfig, LeakageConfig, TieringConfig
from m2fdp.core.config.training import TrainingConfig
from m2fdp.core.config.types import READ_BY, SINCE, Block, Count, Name, Number, spelled
from m2fdp.core.own_code import FORM, is_own

# What a user's own code can stand for.
OWN_KEYS = (
    "algorithm",
    "privacy.mechanism",
    "model.name",
    "model.loss",
    "partition.scheme",
    "dataset.name",
)
# Keys that no result depends on: where files go, how learners are spread over threads and memory,
# and how a run outlives an interruption.
INCIDENTAL = frozenset(
    {
        "cell",
        "threads",
        "resume",
        "figures",
        "pdf",
        "system_metrics",
        "execution.engine",
        "execution.workers",
        "execution.address",
        "features.folder",
        "training.checkpoint_every",
        "training.chunk_size",
    }
)
# Other keys that no release depends on: what is measured of it, and where the records come from.
UNRELEASED = frozenset(
    {
        "training.evaluate_every",
        "training.evaluate_on",
        "dataset.root",
        "dataset.download",
        "dataset.confirmed",
    }
)


class Config(Block):
    """Everything that defines one run."""

    algorithm: str = Field(
        default="m2fdp",
        description="What runs: hfl (no privacy), hfl_dp, pedpfl, m2fdp, H's ldp, hdp, cdp and "
        "hdp_mixed, G's global_dp, D's dtfl, fedavg, splitfed, fedyogi and fedgkt (no privacy, in "
        f"tiers), m2fdp_tiers, scaffold, or {FORM} for an algorithm of your own.",
    )
    seed: Annotated[int, Number, Field(ge=0, le=10**18)] = Field(
        default=0,
        description="Keys every random draw of the run.",
    )
    device: Annotated[
        str,
        spelled(r"cpu|cuda(:\d+)?", "cpu, cuda, or cuda:N for GPU N"),
        WithJsonSchema({"enum": ["cpu", "cuda", "cuda:N"]}),
    ] = Field(
        default="cpu", description="Where models are trained: cpu, cuda, or cuda:N for GPU N."
    )
    threads: Count | None = Field(
        default=None,
        description="Processes, of one thread each, that share a run's steps: at most one a core; "
        "null = one a core. Never changes a result.",
    )
    cell: Annotated[
        Name,
        Field(max_length=200),
        spelled(
            r"\w[\w.-]*(/\w[\w.-]*)*",
            "names of letters, digits, _, . and - (no . or - first), with / between them",
        ),
    ] = Field(
        default="single",
        description="Names the folders that the run writes to, so that runs side by side never "
        "collide.",
    )
    resume: bool = Field(
        default=False, description="Go on with the cell's last run from its newest checkpoint."
    )
    figures: bool = Field(
        default=True,
        description="Draw the run's figures; false in the cells of a study, unless it says true.",
        json_schema_extra={SINCE: "0.12.0"},
    )
    pdf: bool = Field(
        default=False,
        description="Save the run's figures as PDF, too, beside PNG.",
        json_schema_extra={SINCE: "0.11.0"},
    )
    system_metrics: bool = Field(
        default=False,
        description="Have MLflow record what the run takes of processors, memory, disk and GPU.",
        json_schema_extra={SINCE: "0.11.0"},
    )
    options: dict[str, Any] = Field(
        default={},
        description="Options of the algorithm, checked by the algorithm itself.",
        json_schema_extra={SINCE: "0.2.0"},
    )
    dataset: DatasetConfig = DatasetConfig()
    partition: PartitionConfig = PartitionConfig()
    topology: TopologyConfig = TopologyConfig()
    zones: ZonesConfig = Field(
        default=ZonesConfig(), json_schema_extra={SINCE: "0.3.0", READ_BY: ZONED}
    )
    secure_aggregation: SecureAggregationConfig = Field(
        default=SecureAggregationConfig(), json_schema_extra={SINCE: "0.3.0"}
    )
    features: FeaturesConfig = Field(default=FeaturesConfig(), json_schema_extra={SINCE: "0.4.0"})
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    threat: ThreatConfig = ThreatConfig()
    resources: ResourcesConfig = ResourcesConfig()
    audit: AuditConfig = AuditConfig()
    control: ControlConfig = ControlConfig()
    tiering: TieringConfig = Field(default=TieringConfig(), json_schema_extra={SINCE: "0.4.0"})
    clock: ClockConfig = Field(default=ClockConfig(), json_schema_extra={SINCE: "0.4.0"})
    leakage: LeakageConfig = Field(
        default=LeakageConfig(), json_schema_extra={SINCE: "0.5.0", READ_BY: OWN_LOSSES}
    )
    attack: AttackConfig = Field(default=AttackConfig(), json_schema_extra={SINCE: "0.6.0"})
    execution: ExecutionConfig = Field(
        default=ExecutionConfig(), json_schema_extra={SINCE: "0.10.0"}
    )
    deployment: DeploymentConfig = Field(
        default=DeploymentConfig(), json_schema_extra={SINCE: "0.12.0", READ_BY: DEPLOYED}
    )

    @model_validator(mode="after")
    def _validation_records(self) -> Config:
        if self.training.evaluate_on == "validation" and not self.partition.validation_fraction:
            raise ValueError(
                "training.evaluate_on: validation needs partition.validation_fraction > 0"
            )
        return self


def recorded(config: Config) -> dict[str, Any]:
    """The configuration as plain values by dotted key: what tells it from all others.

    A key that came after version 0.1.0, or whose block did (`SINCE` marks its field), is left out
    where it has its default. So noise streams, hashes of cells and saved configurations stay what
    they were when keys are added. It must then never change its default. A key that was removed
    since is there with what every run has now (`m2fdp.core.config.retired`).
    """
    return flatten(less_later(config.model_dump(mode="json"), config, Config()))


@cache
def later_defaults() -> dict[str, Any]:
    """The keys that `recorded` leaves out of `Config()`, with their values."""
    every, kept = flatten(Config().model_dump(mode="json")), recorded(Config())
    return {key: value for key, value in every.items() if key not in kept}


def completed(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What `recorded` or `essentials` gives, with the defaults that it leaves out."""
    return {**later_defaults(), **recorded}


def less_later(
    dump: dict[str, Any], block: Block, default: Block, prefix: str = "", later: bool = False
) -> dict[str, Any]:
    """The dump of a block less what is later and equals its default, as `recorded` says.

    Args:
        prefix: the block's own dotted key with a dot behind it, if it has one.
        later: whether the block as a whole came later.
    """
    kept: dict[str, Any] = {}
    for name, field in type(block).model_fields.items():
        value, usual = getattr(block, name), getattr(default, name)
        extra = field.json_schema_extra
        is_later = later or (isinstance(extra, dict) and SINCE in extra)
        if not is_later or value != usual:
            kept[name] = dump[name]
            if isinstance(value, Block) and type(value) is type(usual):
                kept[name] = less_later(dump[name], value, usual, f"{prefix}{name}.", is_later)
        behind = ((key, gone) for key, gone in RETIRED.items() if gone.after == f"{prefix}{name}")
        kept |= {key.removeprefix(prefix): gone.default for key, gone in behind}
    return kept


def essentials(config: Config) -> dict[str, Any]:
    """All that a result depends on, as plain values by dotted key."""
    return {key: value for key, value in recorded(config).items() if key not in INCIDENTAL}


def released(config: Config) -> dict[str, Any]:
    """All that a release depends on besides the records: what noise is keyed by, with them.

    In two runs that differ here every noise differs. Only what can't change a release is left
    out: how often and on what a model is evaluated, what an audit or an attack does, the place of
    the records' files, and, unless a controller decides by them, energies and delays. Where step
    sizes wait for a better accuracy, the records that it is measured on count as the devices' do.
    In doubt a key stays in: two releases with noise of their own compose; with shared noise they
    protect nothing.
    """
    tests = ("audit.", "attack.")
    unreleased = tests if config.control.enabled else (*tests, "resources.", "control.")
    kept = {
        key: value
        for key, value in essentials(config).items()
        if key not in UNRELEASED and not key.startswith(unreleased)
    }
    if config.control.enabled:
        # A later key whose default is not what was before it.
        kept["control.gap"] = config.control.gap
    return kept


def own_names(config: Config) -> dict[str, str]:
    """The user's own code in a run: its names by the keys that name it."""
    every = flatten(config.model_dump())
    return {key: every[key] for key in OWN_KEYS if is_own(every[key] or "")}


def flatten(parameters: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters as one level of dotted keys; empty blocks stay, as themselves."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
