"""Where a run's rounds are computed: on which processors, or by a tree of real processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from m2fdp.core.config.types import READ_BY, SINCE, Block, Count, Positive, spelled


class ExecutionConfig(Block):
    """Where rounds are computed, block by block. Never changes a result."""

    engine: Literal["local", "ray"] = Field(
        default="local",
        description="Processes of this machine (local, see threads), or the nodes of a Ray cluster "
        "(ray), docs/scaling.md.",
        json_schema_extra={SINCE: "0.10.0"},
    )
    workers: Count | None = Field(
        default=None,
        description="Cores of the cluster that compute; null = all of them, and in a study on Ray "
        "an equal part for each of the runs at a time.",
        json_schema_extra={SINCE: "0.10.0", READ_BY: "execution.engine: ray"},
    )
    address: (
        Annotated[
            str,
            spelled(r"auto|[^\s:]+:\d+", "auto, or HOST:PORT such as 10.0.0.1:6379"),
            WithJsonSchema({"enum": ["auto", "HOST:PORT"]}),
        ]
        | None
    ) = Field(
        default=None,
        description="The cluster; null = one of this machine alone, started for the run, or that "
        "of the study on Ray which the run belongs to.",
        json_schema_extra={SINCE: "0.10.0", READ_BY: "execution.engine: ray"},
    )


class DeploymentConfig(Block):
    """A tree of real processes (docs/deployment.md), as `m2fdp plan` plans it for all nodes."""

    on_missing: Literal["wait", "skip", "stop"] = Field(
        default="wait",
        description="What a parent does when a child has not answered after its patience: wait "
        "for it all the same, go on as if it had not moved (skip), or stop the run.",
    )
    patience_s: Positive = Field(
        default=60.0,
        description="Seconds that a device has for an answer; a server has as many more as there "
        "are layers below it.",
    )
    keepalive_s: Positive = Field(
        default=10.0, description="Seconds between two signs of life on a silent connection."
    )
    chunk_bytes: Annotated[int, Field(ge=1024, le=2**21)] = Field(
        default=2**18, description="A message is cut into parts of so many bytes."
    )
    rehearsal: bool = Field(
        default=False,
        description="Draw all noise from the seed, as the simulator does, so that results can be "
        "compared: whoever knows the plan can subtract it. For records that are nobody's.",
    )
