"""The configuration of one run: every key a user may set, its type, range, default and meaning.

`Config` is the root; each block is also the type of the parameter of that name. `Config()` is
what conf/base says. Keys read like the papers' (J Sec. II-VI). Unknown keys are errors.
docs/configuration.md and the comments in conf/base are made from the texts in `keys`, by
`python docs/configuration.py`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, WithJsonSchema, model_validator
from pydantic.fields import FieldInfo

from m2fdp.core.blocks import (
    NO_RELEASE,
    NO_RESULT,
    PINNED,
    SINCE,
    Block,
    Count,
    Extensible,
    Name,
    Number,
    extended,
    key,
    marks_of,
    readers_of,
    spelled,
)
from m2fdp.core.config.keys import (
    DATASETS,
    PIXELS,
    SCHEMES,
    DatasetConfig,
    ModelConfig,
    PartitionConfig,
    PrivacyConfig,
    ServerConfig,
    ThreatConfig,
    TopologyConfig,
    TrainingConfig,
    TrustConfig,
)
from m2fdp.core.own_code import OWN, is_own
from m2fdp.core.rooms import brought

# Blocks and names that are told in `keys`.
__all__ = ["DATASETS", "PIXELS", "SCHEMES", "DatasetConfig", "ModelConfig", "PartitionConfig"]
__all__ += ["PrivacyConfig", "ServerConfig", "ThreatConfig", "TopologyConfig", "TrainingConfig"]
__all__ += ["TrustConfig"]
_CELL = "names of letters, digits, _, . and - (no . or - first), with / between them"


@extended("")
class Config(Extensible):
    """Everything that defines one run."""

    algorithm: str = "m2fdp"
    """What runs. Without privacy: hfl, D's dtfl, fedavg, splitfed, fedyogi and fedgkt. With
    privacy: m2fdp, hfl_dp, pedpfl, H's ldp, hdp, cdp and hdp_mixed, G's global_dp. Or
    package.module:function for your own."""
    seed: Annotated[int, Number, Field(ge=0, le=10**18)] = 0
    """Keys every random draw of the run."""
    device: Annotated[
        str,
        spelled(r"cpu|cuda(:\d+)?", "cpu, cuda, or cuda:N for GPU N"),
        WithJsonSchema({"enum": ["cpu", "cuda", "cuda:N"]}),
    ] = "cpu"
    """Where models are trained: cpu, cuda, or cuda:N for GPU N."""
    threads: Count | None = key(None, no_result=True)
    """Processes that share a run's steps, at most one a core; null = one a core. Never changes a
    result."""
    cell: Annotated[Name, Field(max_length=200), spelled(r"\w[\w.-]*(/\w[\w.-]*)*", _CELL)] = key(
        "single", no_result=True
    )
    """Names the folders that the run writes to, so that runs side by side never collide."""
    resume: bool = key(False, no_result=True)
    """Go on with the cell's last run from its newest checkpoint."""
    figures: Literal[True, False, "pdf"] = key(True, since="0.12.0", no_result=True)
    """Draw the run's figures; pdf adds PDFs. False in the cells of a study, unless it says
    otherwise."""
    options: dict[str, Any] = key({}, since="0.2.0")
    """Options of the algorithm, checked by the algorithm itself."""
    dataset: DatasetConfig = DatasetConfig()
    partition: PartitionConfig = PartitionConfig()
    topology: TopologyConfig = TopologyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    threat: ThreatConfig = ThreatConfig()

    @model_validator(mode="after")
    def _validation_records(self) -> Self:
        if self.training.evaluate_on == "validation" and not self.partition.validation_fraction:
            raise ValueError(
                "training.evaluate_on: validation needs partition.validation_fraction > 0"
            )
        return self


def recorded(config: Config) -> dict[str, Any]:
    """The configuration as plain values by dotted key: what tells it from all others.

    A key that came after version 0.1.0, or whose block did (`SINCE`), is left out where it has its
    default. So noise streams, hashes of cells and saved configurations stay what they were when
    keys are added. Its default must then never change. A key that was removed since is there with
    what every run has now (`Room.retired`).
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
    """The dump of a block less what is later and equals its default, as `recorded` says; `prefix`
    is the block's own dotted key with a dot behind it, and `later` whether all of it came later."""
    kept: dict[str, Any] = {}
    for name, field in type(block).model_fields.items():
        value, usual = getattr(block, name), getattr(default, name)
        is_later = later or SINCE in marks_of(field)
        if not is_later or value != usual:
            kept[name] = dump[name]
            if isinstance(value, Block) and type(value) is type(usual):
                kept[name] = less_later(dump[name], value, usual, f"{prefix}{name}.", is_later)
        behind = ((key, gone) for key, gone in _retired().items() if gone.after == prefix + name)
        kept |= {key.removeprefix(prefix): gone.default for key, gone in behind}
    return kept


def essentials(config: Config) -> dict[str, Any]:
    """All that a result depends on, as plain values by dotted key."""
    incidental = marked(NO_RESULT)
    return {key: value for key, value in recorded(config).items() if key not in incidental}


def released(config: Config) -> dict[str, Any]:
    """All that a release depends on besides the records: what noise is keyed by, with them.

    In two runs that differ here every noise differs. Only keys that can't change a release are
    left out: how often and on what a model is evaluated, what an audit or an attack does, where
    files are. Energies and delays are left out unless something decides by them. Where step sizes
    wait for a better accuracy, the records that it is measured on count as the devices' do.
    In doubt a key stays in: two releases with noise of their own compose; with shared noise they
    protect nothing.
    """
    deciding = tuple(prefix for decides in brought("decides") for prefix in decides(config))
    unreleased = {key for key in marked(NO_RELEASE) if not key.startswith(deciding)}
    kept = {key: value for key, value in essentials(config).items() if key not in unreleased}
    every = flatten(config.model_dump(mode="json"))
    return kept | {key: every[key] for key in marked(PINNED) if key not in unreleased}


@cache
def _retired() -> dict[str, Any]:
    return {key: gone for table in brought("retired") for key, gone in table.items()}


class Key(NamedTuple):
    """A key of a configuration by its dotted name, with the fields of the blocks around it and its
    own."""

    name: str
    value: Any
    default: Any
    fields: tuple[FieldInfo, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """The texts of who reads it; none = every run."""
        return tuple(reader for field in self.fields for reader in readers_of(field))


def keys_of(
    block: Block, usual: Block, prefix: str = "", around: tuple[FieldInfo, ...] = ()
) -> Iterator[Key]:
    """Every key of a block and of those inside it; `usual` is the same block with its defaults."""
    for name, field in type(block).model_fields.items():
        value, default = getattr(block, name), getattr(usual, name)
        fields = (*around, field)
        if isinstance(value, Block):
            yield from keys_of(value, default, f"{prefix}{name}.", fields)
        else:
            yield Key(f"{prefix}{name}", value, default, fields)


@cache
def marked(mark: str) -> tuple[str, ...]:
    """The dotted keys that bear a mark, or stand in a block that does; removed ones with the key
    behind which they are recorded."""
    every = keys_of(Config(), Config())
    keys = [key.name for key in every if any(mark in marks_of(field) for field in key.fields)]
    return (*keys, *(key for key, gone in _retired().items() if gone.after in keys))


def own_names(config: Config) -> dict[str, str]:
    """The user's own code in a run: its names by the keys that name it."""
    every, keys = flatten(config.model_dump()), ("algorithm", "privacy.mechanism", *OWN)
    return {key: every[key] for key in keys if is_own(every[key] or "")}


def flatten(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters as one level of dotted keys; empty blocks stay, as themselves."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
