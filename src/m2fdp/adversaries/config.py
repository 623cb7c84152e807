"""The blocks of audits and attacks."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from m2fdp.core.blocks import NO_RELEASE, SINCE, Block, Count, Number, key

# What reads keys of attacks that look for images.
_RECONSTRUCTION = "attack.method: analytic or dlg or idlg or inverting"
_SEARCH = "attack.method: dlg or idlg or inverting"


class AuditConfig(Block):
    """How `kedro run --pipelines=audit` tests the promise."""

    marks = {NO_RELEASE: True}

    method: Literal["canaries", "neighbours"] = key("canaries", since="0.20.0")
    """A lower bound on epsilon, from copies with and without the worst record (canaries); or,
    in seconds, whether any message moves further than its line of the ledger allows
    (neighbours)."""
    # Pairs of runs (neighbours), and what lower bounds hold with (canaries).
    neighbours: ClassVar[int] = 200
    confidence: ClassVar[float] = 0.95
    repetitions: Annotated[int, Number, Field(ge=20, le=1_000_000)] = key(
        1000, read_by="audit.method: canaries"
    )
    """The most copies of each world, with and without the canary. Bounds beyond about
    ln(repetitions / 2) can't be shown."""
    rounds: Count | None = None
    """At most so many of the run's rounds; null = all."""


class AttackConfig(Block):
    """What `kedro run --pipelines=attack` tries to take from the run's own messages."""

    marks = {SINCE: "0.6.0", NO_RELEASE: True}

    method: Literal["analytic", "dlg", "idlg", "inverting", "lira"] = "inverting"
    """Reconstruction: of a linear first layer (analytic), by least squares (dlg, idlg), by
    cosine and total variation (inverting). Membership: lira."""
    observer: (
        Literal[
            "servers",
            "trusted_servers",
            "cloud",
            "siblings",
            "far_devices",
            "public",
            "uplinks",
            "downlinks",
        ]
        | None
    ) = None
    """Who attacks, by the ledger's names; null = the cloud, for lira public and far_devices."""
    round: Count = key(1, read_by=_RECONSTRUCTION)
    """The round whose messages are read (reconstruction)."""
    messages: Annotated[int, Number, Field(ge=1, le=10_000)] = key(4, read_by=_RECONSTRUCTION)
    """At most so many messages are attacked (reconstruction)."""
    # At most so many are sought in one message (dlg, idlg, inverting).
    images: ClassVar[int] = 4
    restarts: Annotated[int, Number, Field(ge=1, le=1000)] = key(2, read_by=_SEARCH)
    """Starts of a reconstruction, of which the one that explains the message best counts."""
    iterations: Annotated[int, Number, Field(ge=20, le=100_000)] = key(300, read_by=_SEARCH)
    """Of each start."""
    # The weight of an image's total variation (Geiping et al. 2020), and that of lower bounds.
    total_variation: ClassVar[float] = 1e-6
    targets: Annotated[int, Number, Field(ge=10, le=100_000)] = key(
        1000, read_by="attack.method: lira"
    )
    """At most so many records whose membership is guessed (lira)."""
    shadows: Annotated[int, Number, Field(ge=16, le=4096, multiple_of=8)] = key(
        64, read_by="attack.method: lira"
    )
    """Models trained with half of the targets each, half of them to be tested (lira); a
    multiple of 8."""
    confidence: ClassVar[float] = 0.95
