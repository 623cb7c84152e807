"""The block of the schedule."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from m2fdp.core.blocks import (
    NO_RELEASE,
    NO_RESULT,
    READ_BY,
    SINCE,
    Block,
    Count,
    Decay,
    Extensible,
    FromText,
    NonNegative,
    Number,
    Positive,
    extended,
    spelled,
)

# Every step of a run is planned before the first.
_MOST_STEPS = 10_000_000


_MOMENTUM, _YOGI = "training.server.rule: momentum", "training.server.rule: yogi"


class ServerConfig(Block):
    """What the cloud makes of a round's aggregate w' and the model w that the round began with."""

    rule: Literal["average", "momentum", "yogi"] = Field(
        default="average",
        description="w' itself (average, J eq. 13); a step along v <- momentum v + w' - w "
        "(momentum, FedAvgM, Hsu et al. 2019); or one by the moments of w' - w (yogi, Reddi et al. "
        "2021). It sees only what the cloud has received, and costs no epsilon and no message.",
    )
    momentum: Decay = Field(
        default=0.5,
        description="beta, what is left of v after a round.",
        json_schema_extra={READ_BY: _MOMENTUM},
    )
    learning_rate: Positive = Field(
        default=0.01, description="Step size of the server.", json_schema_extra={READ_BY: _YOGI}
    )


@extended("training")
class TrainingConfig(Extensible):
    """The schedule of J Algorithm 1."""

    rounds: Count = Field(default=30, description="T, global rounds.")
    local_steps: Count = Field(default=4, description="K, local steps of a round.")
    local_aggregation: dict[int, Count] = Field(
        default={1: 2},
        description="By layer l: a local aggregation up to it every so many local steps; null = "
        "none.",
    )
    participants: Count | None = Field(
        default=None,
        description="s_c, devices of each lowest server that take part in a round, drawn "
        "uniformly; null = all.",
    )
    participation: Annotated[float, Number, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="q: every device takes part in a round with this chance, by itself (H Alg. 1); "
        "null = all, or `participants`.",
        json_schema_extra={SINCE: "0.3.0"},
    )
    estimator: Literal["mean", "fixed", "clipped"] = Field(
        default="mean",
        description="What a lowest server makes of its devices' updates: their mean (with "
        "`participation` over the expected number), or their weighted sum over q times the weight "
        "of all (fixed) or over the larger of q least_weight and the weight of those who take part "
        "(clipped).",
        json_schema_extra={SINCE: "0.3.0", READ_BY: "privacy.unit: device"},
    )
    least_weight: Positive | None = Field(
        default=None,
        description="W_min of `estimator: clipped`.",
        json_schema_extra={SINCE: "0.3.0", READ_BY: "training.estimator: clipped"},
    )
    batch_size: Positive | None = Field(
        default=None,
        description="B, expected size of a device's Poisson-sampled minibatch; null = its whole "
        "shard.",
    )
    learning_rate: Positive = Field(default=0.5, description="gamma, the (first) step size.")
    accumulated_noise: Positive | None = Field(
        default=None,
        description="The standard deviation that noise alone may give a parameter by the last "
        "round: all steps are shortened by one factor until it does not pass it; null = steps as "
        "they are. Without noise nothing is shortened.",
        json_schema_extra={SINCE: "0.16.0"},
    )
    step_size: Literal["constant", "inverse_sqrt"] = Field(
        default="constant",
        description="eta^t = gamma (constant), or gamma / sqrt(t + 1) (inverse_sqrt, J Thm 1).",
    )
    proximal: NonNegative = Field(
        default=0.0,
        description="mu: every local step also goes -eta mu (w - centre), un-clipped and un-noised "
        "(G Alg. 1, FedProx); at most 1/eta.",
        json_schema_extra={SINCE: "0.5.0"},
    )
    proximal_center: Literal["received", "global"] = Field(
        default="received",
        description="The centre of the proximal term: the model that the device last received, or "
        "the one that the round began with.",
        json_schema_extra={SINCE: "0.5.0"},
    )
    server: ServerConfig = Field(default=ServerConfig(), json_schema_extra={SINCE: "0.10.0"})
    evaluate_every: Count = Field(
        default=1,
        description="Rounds between two evaluations.",
        json_schema_extra={NO_RELEASE: True},
    )
    metrics: Annotated[
        list[Annotated[str, spelled(r"[\w.]+:\w+", "package.module:NAME, a Metric of your own")]],
        FromText,
    ] = Field(
        default=[],
        description="Metrics of your own, as `package.module:NAME`, that every evaluation takes "
        "beside accuracy and loss (docs/metrics.md).",
        json_schema_extra={SINCE: "0.21.0", NO_RELEASE: True},
    )
    evaluate_on: Literal["test", "validation"] = Field(
        default="test",
        description="The records that the model is evaluated on; validation needs "
        "`partition.validation_fraction`.",
        json_schema_extra={NO_RELEASE: True},
    )
    checkpoint_every: Count | None = Field(
        default=10,
        description="Rounds between two checkpoints, which `resume` goes on from; null = none.",
        json_schema_extra={NO_RESULT: True},
    )
    backend: Literal["auto", "reference", "sequential", "stacked"] = Field(
        default="auto",
        description="How gradients are computed: one record at a time (reference), one learner "
        "after the other (sequential), many in one product (stacked), or what is fastest (auto). "
        "In tiers: client and server by themselves (reference), or in one step (auto).",
    )

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
