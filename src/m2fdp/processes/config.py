"""The block of where rounds are computed."""

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from m2fdp.core.blocks import NO_RESULT, SINCE, Block, Count, key, spelled


class ExecutionConfig(Block):
    """Where rounds are computed, block by block. Never changes a result."""

    marks = {SINCE: "0.10.0", NO_RESULT: True}

    engine: Literal["local", "ray"] = key("local", since="0.10.0")
    """Processes of this machine (local, see threads), or the nodes of a Ray cluster (ray),
    docs/scaling.md."""
    workers: Count | None = key(None, since="0.10.0", read_by="execution.engine: ray")
    """Cores of the cluster that compute; null = all, in a study an equal part for each run."""
    address: (
        Annotated[
            str,
            spelled(r"auto|[^\s:]+:\d+", "auto, or HOST:PORT such as 10.0.0.1:6379"),
            WithJsonSchema({"enum": ["auto", "HOST:PORT"]}),
        ]
        | None
    ) = key(None, since="0.10.0", read_by="execution.engine: ray")
    """The cluster; null = one of this machine alone, or that of the study on Ray."""
