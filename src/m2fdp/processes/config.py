"""The block of where rounds are computed."""

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from m2fdp.core import blocks


class ExecutionConfig(blocks.Block):
    """Where rounds are computed, block by block. Never changes a result."""

    marks = {blocks.SINCE: "0.10.0", blocks.NO_RESULT: True}

    engine: Literal["local", "ray"] = Field(
        default="local",
        description="Processes of this machine (local, see threads), or the nodes of a Ray cluster "
        "(ray), docs/scaling.md.",
        json_schema_extra={blocks.SINCE: "0.10.0"},
    )
    workers: blocks.Count | None = Field(
        default=None,
        description="Cores of the cluster that compute; null = all of them, and in a study on Ray "
        "an equal part for each of the runs at a time.",
        json_schema_extra={blocks.SINCE: "0.10.0", blocks.READ_BY: "execution.engine: ray"},
    )
    address: (
        Annotated[
            str,
            blocks.spelled(r"auto|[^\s:]+:\d+", "auto, or HOST:PORT such as 10.0.0.1:6379"),
            WithJsonSchema({"enum": ["auto", "HOST:PORT"]}),
        ]
        | None
    ) = Field(
        default=None,
        description="The cluster; null = one of this machine alone, started for the run, or that "
        "of the study on Ray which the run belongs to.",
        json_schema_extra={blocks.SINCE: "0.10.0", blocks.READ_BY: "execution.engine: ray"},
    )
