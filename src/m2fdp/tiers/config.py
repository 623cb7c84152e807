"""Keys of D's tiers: who trains how much of a split model, its privacy, how long that takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from m2fdp.core.blocks import READ_BY, SINCE, Block, Count, Epsilon, FromText, Number, Positive, key
from m2fdp.core.errors import InputError

# Who reads keys.
IN_TIERS, SPLITTING = "algorithms that train in tiers", "algorithm: m2fdp_tiers"
OWN_LOSSES = "algorithms whose clients have losses of their own (dtfl)"
CLOCK = "the pipeline clock"
SCHEDULED = f"{OWN_LOSSES} | {SPLITTING} | {CLOCK}"
BILLED = f"{IN_TIERS} | {SPLITTING} | {CLOCK}"


def _way(run: Any) -> Any:
    """How the algorithm of a run trains in tiers, if it does."""
    return getattr(run.algorithm, "tiers", None)


READERS: dict[str, Callable[[Any], bool]] = {
    IN_TIERS: lambda run: _way(run) is not None,
    OWN_LOSSES: lambda run: _way(run) is not None and _way(run).tiered,
    SPLITTING: lambda run: run.network.splits is not None,
}
_DEEPEST = 1010  # layers; deeper ones take longer to count than to describe
_PAPER_TIERS = 6  # of D's Table 2
TRAINED = "trained"  # the model that is trained itself


def _model(name: str) -> str:
    if name == TRAINED:
        return name
    depth = int(name[6:]) if re.fullmatch(r"resnet\d{1,4}", name) else 0
    if not 20 <= depth <= _DEEPEST or depth % 18 != 2:
        raise ValueError(
            f"valid: resnet56, resnet110, any resnetN of N = 18 b + 2 layers, "
            f"from resnet20 to resnet{_DEEPEST}, or {TRAINED}"
        )
    return name


def _pair(value: Any) -> Any:
    """`0.2/30` is D's way to write a profile; lists can't stand on a command line."""
    pair = value.split("/") if isinstance(value, str) else value
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("valid: CPUs and a link rate, such as 0.2/30")
    return pair


Profile = Annotated[list[Positive], BeforeValidator(_pair)]


class PlateauConfig(Block):
    """Smaller steps where the accuracy stands still (D A.4); algorithms that train in tiers."""

    factor: Annotated[float, Number, Field(gt=0, le=1)] = 1.0
    """What the step size is multiplied with; 1 = never, D's is 0.9."""
    # Rounds without a better accuracy that are waited for, and by how much of the best one another
    # must be better (D A.4).
    patience: ClassVar[int] = 10
    threshold: ClassVar[float] = 1e-4


class TierTraining(Block):
    """What `training` says of tiers."""

    local_epochs: Count = key(1, since="0.5.0", read_by=IN_TIERS)
    """Passes of a device over its records in a round, in place of `local_steps`."""
    plateau: PlateauConfig = key(PlateauConfig(), since="0.5.0", read_by=IN_TIERS)


# Of what two releases share: neither may have all of it.
Share = Annotated[float, Number, Field(gt=0, lt=1)]


class SplitPrivacy(Block):
    """What `privacy` says of models that are split."""

    client_share: Share = key(0.5, since="0.5.0", read_by=SPLITTING)
    """beta: of a split model, the client's part of a record's gradient is clipped to C
    sqrt(beta), the server's to C sqrt(1 - beta)."""
    # C_z, of a record's activations where they go to an untrusted server.
    activation_clip: ClassVar[float] = 1.0
    activation_share: Share = key(0.5, since="0.5.0", read_by=SPLITTING)
    """a: the part of the squared shift that goes to the activations; the rest goes to the
    client's gradients."""
    labels: Literal["public", "randomised"] = key("public", since="0.5.0", read_by=SPLITTING)
    """Labels that go to an untrusted server: not protected (public), or by randomised response,
    drawn once a record (randomised)."""
    label_epsilon: Epsilon = key(
        1.0, since="0.5.0", read_by=[SPLITTING, "privacy.labels: randomised"]
    )
    """Of a randomised label; a part of epsilon, spent once."""


class TieringConfig(Block):
    """Tiers of a split model and D's scheduler (D Algorithm 1, Table 11)."""

    marks = {SINCE: "0.4.0"}

    tiers: Annotated[int, Number, Field(ge=1, le=7)] = key(7, read_by=SCHEDULED)
    """M: how many of the seven cuts are used, the highest ones. Tier 1 leaves a client the
    least."""
    whole_model: bool = key(False, read_by=SCHEDULED)
    """One tier more, beyond D: the client trains the whole model and sends no activations."""
    schedule: Literal["dynamic", "oracle", "static"] = key("dynamic", read_by=SCHEDULED)
    """Tiers by observed times (dynamic), by the round's own times before it runs (oracle), or
    the same for all (static)."""
    static_tier: Count | None = None
    """The tier of all clients; schedule: static only."""
    profile: Literal["clock", "paper"] = key("clock", read_by=SCHEDULED)
    """What the scheduler believes of the tiers' times: the clock's FLOPs (clock), or D's Table
    2 (paper)."""
    # Weight of the newest observation in the mean of a tier's observed times.
    ema: ClassVar[float] = 0.6667
    # Of clients of whom nothing has been observed.
    initial_tier: ClassVar[int] = 1
    offload_to: Literal["anyone", "trusted"] = key("trusted", since="0.5.0", read_by=SPLITTING)
    """Who trains the rest of a device's model: its parent if the tree trusts it (trusted), or
    any parent (anyone; algorithm: m2fdp_tiers)."""

    @model_validator(mode="after")
    def _tiers_that_exist(self) -> TieringConfig:
        most = self.tiers + self.whole_model
        if (self.schedule == "static") != (self.static_tier is not None):
            raise ValueError("schedule: static and static_tier need each other")
        if self.static_tier is not None and self.static_tier > most:
            raise ValueError(f"static_tier = {self.static_tier} must be one of 1 to {most}")
        if self.profile == "paper" and (self.tiers < _PAPER_TIERS or self.whole_model):
            raise ValueError("profile: paper knows tiers: 6 and 7 only, and no whole_model")
        return self


class ClockConfig(Block):
    """Simulated seconds of D's clients: what they compute and send (D Sec. 4.1)."""

    marks = {SINCE: "0.4.0"}

    model: Annotated[str, AfterValidator(_model)] = key("resnet56", read_by=BILLED)
    """Whose FLOPs and bytes are billed: resnet56, resnet110, any resnetN of N = 18 b + 2
    layers, or trained, the model itself."""
    # Channels of its first module, and the training records that all clients hold (D's CIFAR-10).
    width: ClassVar[int] = 16
    records: ClassVar[int] = 50_000
    # 10^9 FLOPs a second of one CPU of D's; follows from D's Table 1.
    cpu_gflops: ClassVar[float] = 150.0
    # 10^9 FLOPs a second of the server for each client it serves; follows from D's Table 1.
    server_gflops: ClassVar[float] = 350.0
    server: Literal["unlimited", "shared"] = key("unlimited", read_by=BILLED)
    """The server trains its parts of all clients' models at once (unlimited, D), or one after the
    other (shared)."""
    rate_unit: Literal["mebibyte", "megabit"] = key("mebibyte", read_by=BILLED)
    """What a profile's rate counts a second: MiB, as D's tables imply, or Mbit, as D's text
    says."""
    noise: Annotated[float, Number, Field(ge=0, le=1)] = key(0.05, read_by=BILLED)
    """Standard deviation of the logarithm of a client's computing time, by round; 0 = none."""
    profiles: Annotated[list[Profile], FromText, Field(min_length=1)] = key(
        [[4.0, 100.0], [2.0, 30.0], [1.0, 30.0], [0.2, 30.0], [0.1, 10.0]], read_by=BILLED
    )
    """CPUs and link rate of a client's kinds, 4/100|0.2/30 on the command line; at the start
    equally many of each."""
    switch_every: Count | None = key(50, read_by=BILLED)
    """Rounds between two changes of profiles; null = none."""
    # Share of the clients that then draw a new profile (D Sec. 4.1).
    switch_share: ClassVar[float] = 0.3

    @property
    def depth(self) -> int:
        """Layers of the model, unless it is the one that is trained, which only a run has."""
        if self.model == TRAINED:
            remedy = "is known where a model is trained in tiers only; use resnet56 or resnet110"
            raise InputError("clock.model", TRAINED, remedy)
        return int(self.model.removeprefix("resnet"))


class LeakageConfig(Block):
    """D's means against what activations tell (D Sec. 4.4); neither has an epsilon."""

    marks = {SINCE: "0.5.0", READ_BY: OWN_LOSSES}
    file = "tiering"

    distance_correlation: Annotated[float, Number, Field(ge=0, lt=1)] = 0.0
    """alpha: a client descends (1 - alpha) loss + alpha times the distance correlation of its
    images and activations."""
    patch_shuffling: bool = False
    """Whether the places of every record's activations are shuffled before they are sent."""
