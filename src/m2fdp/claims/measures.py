"""Measures of runs: what figures and claims compare.

`m2fdp.core.metrics` declares what runs measure themselves; here stand the measures that are derived
from several rounds, and those that rooms beside the core bring.
"""

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from m2fdp.core.errors import InputError, among
from m2fdp.core.metrics import ACCURACY, DELAY, ENERGY, KEY, LOSS, OWN, Metric

# The size of a network, which is no result but what results are shown over.
DEVICES, ZONES, FANOUTS = "devices", "zones", "topology.fanouts"
SIZES = (DEVICES, ZONES)


@dataclass(frozen=True, kw_only=True)
class Measure(Metric):
    """A metric that only a comparison of runs knows."""

    # MLflow's metric that it is read from. A star at the end stands for the largest of those
    # that begin so; empty = it is computed.
    tracked: str = ""
    # whether that is one of every round, whose mean over all rounds but the first it is
    of_rounds: bool = False


def _measure(
    name: str, label: str, tracked: str = "", digits: int | None = None, unit: str = "", **more: Any
) -> Measure:
    return Measure(name=name, label=label, tracked=tracked, digits=digits, unit=unit, **more)


def _bound(name: str, label: str, source: str, digits: int = 3) -> Measure:
    return _measure(name, label, source, digits, bound=True)


def _decided(name: str, label: str, source: str, unit: str) -> Measure:
    return _measure(name, label, f"control/{source}", 1, unit, of_rounds=True)


def _attack(name: str, label: str, source: str, digits: int, unit: str = "") -> Measure:
    return _measure(f"attack_{name}", label, f"attack/{source}", digits, unit)


VOLATILITY = _measure("volatility", "volatility of the accuracy", digits=4, share=True)
ROUNDS_TO_TARGET = _measure("rounds_to_target", "rounds to the target", digits=1, unit="rounds")
ENERGY_TO_TARGET = _measure("energy_to_target", "energy to the target (J)", unit="J")
DELAY_TO_TARGET = _measure("delay_to_target", "delay to the target (s)", unit="s")
SECONDS_PER_ROUND = _measure("seconds_per_round", "seconds of a round (s)", unit="s")
_DECLARED: tuple[Metric, ...] = (
    ACCURACY,
    replace(LOSS, label="loss on the test records"),
    *(VOLATILITY, ROUNDS_TO_TARGET, ENERGY_TO_TARGET, DELAY_TO_TARGET, SECONDS_PER_ROUND),
    _decided("local_steps", "K (local steps a round)", "K", "steps"),
    _decided("s_trusted", "s below trusted nodes (devices)", "s_trusted", "devices"),
    _decided("s_untrusted", "s below untrusted nodes (devices)", "s_untrusted", "devices"),
    _measure(DEVICES, "devices of the network", digits=0, unit="devices"),
    _measure(ZONES, "zones (lowest servers)", digits=0, unit="zones"),
    _measure("v", "V", "zones/v"),
    _measure("epsilon_by_h", "ε/√V", "zones/epsilon_by_h", 3),
    _measure("epsilon_by_h_with_sums", "ε/V", "zones/epsilon_by_h_with_sums", 4),
    _bound("epsilon_public", "ε, the public", "zones/epsilon/public"),
    _bound("least_epsilon_public", "least ε, the public", "zones/least_epsilon/public"),
    _bound("epsilon_elsewhere", "ε, devices elsewhere", "zones/epsilon/devices_elsewhere"),
    _bound("epsilon_in_zone", "ε, devices of the zone", "zones/epsilon/devices_of_the_zone"),
    _bound("epsilon_cloud", "ε, the cloud", "zones/epsilon/cloud"),
    _bound("epsilon_coalition", "ε, cloud with super-nodes", "zones/epsilon/cloud_with_*"),
    _bound("epsilon_super_node", "ε, the super-node", "zones/epsilon/super-node"),
    _bound("epsilon_elected", "ε, an elected super-node", "zones/epsilon/elected_super-node"),
    _measure("noise", "noise over shift, broadcast", "zones/noise_over_shift/public"),
    _attack("psnr", "PSNR of reconstructions (dB)", "psnr", 1, "dB"),
    _attack("psnr_best", "best PSNR (dB)", "psnr_best", 1, "dB"),
    _attack("psnr_blind", "PSNR of a blind guess (dB)", "psnr_blind", 1, "dB"),
    _attack("ssim", "SSIM of reconstructions", "ssim", 3),
    replace(_attack("labels", "labels read off", "labels_right", 3), share=True),
    _attack("epsilon", "ε of what was attacked, at most", "epsilon", 1),
    _attack("auc_public", "AUC, the public", "auc/public", 3),
    _attack("auc_far", "AUC, devices elsewhere", "auc/far_devices", 3),
    _attack("tpr_public", "members found at 1 %, the public", "tpr_at_0.01/public", 4),
    _attack("tpr_far", "members found at 1 %, devices elsewhere", "tpr_at_0.01/far_devices", 4),
    _attack("room", "room below the ledger's bound", "room", 4),
    _attack("epsilon_lower", "ε at least (LiRA)", "epsilon_lower/*", 2),
    _bound("ledger_servers", "ε, untrusted servers (ledger)", "epsilon_observer/servers", 1),
    _bound("ledger_cloud", "ε, the cloud (ledger)", "epsilon_observer/cloud", 1),
    _bound("ledger_siblings", "ε, siblings (ledger)", "epsilon_observer/siblings", 1),
    _bound("ledger_downlinks", "ε, downlinks (ledger)", "epsilon_observer/downlinks", 1),
)
_BY_NAME: dict[str, Metric] = {measure.name: measure for measure in _DECLARED}
# By name: those above, and what users have declared.
MEASURES: Mapping[str, Metric] = ChainMap(OWN, _BY_NAME)
# Measures of the evaluation that reaches the target first, by the history's column.
TO_TARGET = {
    "round": ROUNDS_TO_TARGET.name,
    ENERGY.name: ENERGY_TO_TARGET.name,
    DELAY.name: DELAY_TO_TARGET.name,
}


def tracked(*, of_rounds: bool) -> dict[str, str]:
    """MLflow's metrics that measures are read from, by the measures' names: the decisions of every
    round, or what is known at a run's end, the users' own metrics among it."""
    own = {} if of_rounds else {name: name for name in OWN}
    found = {
        measure.name: measure.tracked
        for measure in _DECLARED
        if isinstance(measure, Measure) and measure.tracked and measure.of_rounds == of_rounds
    }
    return found | own


def check_measure(name: str, columns: Collection[str], target_accuracy: float | None) -> None:
    """Refuse a measure that the runs of a study can't have."""
    if name not in MEASURES:
        raise InputError("measure", name, f"is unknown; valid are {among(name, MEASURES)}")
    if name in TO_TARGET.values() and target_accuracy is None:
        raise InputError("measure", name, "needs the study's target_accuracy")
    if name in SIZES and FANOUTS not in columns:
        raise InputError("measure", name, f"needs a study that varies {FANOUTS}")


def check_own_metrics() -> None:
    """Refuse metrics of a user's own that are called as a study's measure is."""
    for name in OWN.keys() & _BY_NAME.keys():
        raise InputError(KEY, name, "is what studies call a measure of theirs; name it otherwise")
