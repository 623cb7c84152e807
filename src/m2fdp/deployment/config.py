"""The block of a tree of real processes."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from m2fdp.core.blocks import READ_BY, SINCE, Block, Positive

# Who reads it.
DEPLOYED = "the command m2fdp plan"
READERS: dict[str, Callable[[Any], bool]] = {DEPLOYED: lambda run: "deployment" in run.pipelines}


class DeploymentConfig(Block):
    """A tree of real processes (docs/deployment.md), as `m2fdp plan` plans it for all nodes."""

    marks = {SINCE: "0.12.0", READ_BY: DEPLOYED}

    on_missing: Literal["wait", "skip", "stop"] = "wait"
    """What a parent does when a child has not answered in time: wait on, go on without it
    (skip), or stop the run."""
    patience_s: Positive = 60.0
    """Seconds that a device has for an answer; a server has as many more as there are layers below
    it."""
    # Seconds between two signs of life on a silent connection, and the bytes of a message's parts.
    keepalive_s: ClassVar[float] = 10.0
    chunk_bytes: ClassVar[int] = 2**18
    rehearsal: bool = False
    """Draw all noise from the seed, so that results can be compared. Whoever knows the plan can
    subtract it: for nobody's records only."""
