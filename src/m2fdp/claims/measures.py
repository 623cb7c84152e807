"""Measures of runs: what figures and claims compare beside the final accuracy."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import quantity

# The size of a network, which is no result but what results are shown over.
DEVICES, ZONES, FANOUTS = "devices", "zones", "topology.fanouts"
SIZES = (DEVICES, ZONES)


@dataclass(frozen=True)
class Measure:
    """How a measure is written."""

    label: str  # on an axis, with the unit
    unit: str = ""  # "" = none
    digits: int | None = None  # after the decimal point; None = three in all
    share: bool = False  # of one, so that differences are in points
    bound: bool = False  # from above, of which the largest over seeds counts
    # MLflow's metric of it; where that ends in a star, the largest of those that begin so.
    metric: str = ""

    def text(self, value: float) -> str:
        """A value in the measure's digits; a dash where there is none."""
        if math.isfinite(value):
            return quantity(value) if self.digits is None else f"{value:,.{self.digits}f}"
        return "–" if math.isnan(value) else "∞"


def _bound(label: str, metric: str, digits: int = 3) -> Measure:
    return Measure(label, digits=digits, bound=True, metric=metric)


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", digits=3, share=True),
    "loss": Measure("loss on the test records", digits=3),
    "volatility": Measure("volatility of the accuracy", digits=4, share=True),
    "rounds_to_target": Measure("rounds to the target", "rounds", 1),
    "energy_to_target": Measure("energy to the target (J)", "J"),
    "delay_to_target": Measure("delay to the target (s)", "s"),
    "seconds_per_round": Measure("seconds of a round (s)", "s"),
    "local_steps": Measure("K (local steps a round)", "steps", 1),
    "s_trusted": Measure("s below trusted nodes (devices)", "devices", 1),
    "s_untrusted": Measure("s below untrusted nodes (devices)", "devices", 1),
    DEVICES: Measure("devices of the network", "devices", 0),
    ZONES: Measure("zones (lowest servers)", "zones", 0),
    "v": Measure("V", metric="zones/v"),
    "epsilon_by_h": Measure("ε/√V", metric="zones/epsilon_by_h", digits=3),
    "epsilon_by_h_with_sums": Measure("ε/V", metric="zones/epsilon_by_h_with_sums", digits=4),
    "epsilon_public": _bound("ε, the public", "zones/epsilon/public"),
    "least_epsilon_public": _bound("least ε, the public", "zones/least_epsilon/public"),
    "epsilon_elsewhere": _bound("ε, devices elsewhere", "zones/epsilon/devices_elsewhere"),
    "epsilon_in_zone": _bound("ε, devices of the zone", "zones/epsilon/devices_of_the_zone"),
    "epsilon_cloud": _bound("ε, the cloud", "zones/epsilon/cloud"),
    "epsilon_coalition": _bound("ε, cloud with super-nodes", "zones/epsilon/cloud_with_*"),
    "epsilon_super_node": _bound("ε, the super-node", "zones/epsilon/super-node"),
    "epsilon_elected": _bound("ε, an elected super-node", "zones/epsilon/elected_super-node"),
    "noise": Measure("noise over shift, broadcast", metric="zones/noise_over_shift/public"),
    "attack_psnr": Measure(
        "PSNR of reconstructions (dB)", metric="attack/psnr", unit="dB", digits=1
    ),
    "attack_psnr_best": Measure("best PSNR (dB)", metric="attack/psnr_best", unit="dB", digits=1),
    "attack_psnr_blind": Measure(
        "PSNR of a blind guess (dB)", metric="attack/psnr_blind", unit="dB", digits=1
    ),
    "attack_ssim": Measure("SSIM of reconstructions", metric="attack/ssim", digits=3),
    "attack_labels": Measure("labels read off", metric="attack/labels_right", digits=3, share=True),
    "attack_epsilon": Measure("ε of what was attacked, at most", metric="attack/epsilon", digits=1),
    "attack_auc_public": Measure("AUC, the public", metric="attack/auc/public", digits=3),
    "attack_auc_far": Measure("AUC, devices elsewhere", metric="attack/auc/far_devices", digits=3),
    "attack_tpr_public": Measure(
        "members found at 1 %, the public", metric="attack/tpr_at_0.01/public", digits=4
    ),
    "attack_tpr_far": Measure(
        "members found at 1 %, devices elsewhere", metric="attack/tpr_at_0.01/far_devices", digits=4
    ),
    "attack_room": Measure("room below the ledger's bound", metric="attack/room", digits=4),
    "attack_epsilon_lower": Measure("ε at least (LiRA)", metric="attack/epsilon_lower/*", digits=2),
    "ledger_servers": _bound("ε, untrusted servers (ledger)", "epsilon_observer/servers", digits=1),
    "ledger_cloud": _bound("ε, the cloud (ledger)", "epsilon_observer/cloud", digits=1),
    "ledger_siblings": _bound("ε, siblings (ledger)", "epsilon_observer/siblings", digits=1),
    "ledger_downlinks": _bound("ε, downlinks (ledger)", "epsilon_observer/downlinks", digits=1),
}
# What H's zones and the ledger say of a run, and what attacks take, by measure.
OF_METRICS = {name: measure.metric for name, measure in MEASURES.items() if measure.metric}
# The controller's decisions in a round.
DECISIONS = ("K", "s_trusted", "s_untrusted")
# Measures of the evaluation that reaches the target first, by the history's column.
TO_TARGET = {
    "round": "rounds_to_target",
    "energy_j": "energy_to_target",
    "delay_s": "delay_to_target",
}


def check_measure(name: str, columns: Collection[str], target_accuracy: float | None) -> None:
    """Refuse a measure that the runs of a study can't have.

    Args:
        columns: arm, version and parameters in which the runs differ.
        target_accuracy: the study's target; None = none.

    Raises:
        InputError: naming what is valid.
    """
    if name not in MEASURES:
        raise InputError("measure", name, f"is unknown; valid are {among(name, MEASURES)}")
    if name in TO_TARGET.values() and target_accuracy is None:
        raise InputError("measure", name, "needs the study's target_accuracy")
    if name in SIZES and FANOUTS not in columns:
        raise InputError("measure", name, f"needs a study that varies {FANOUTS}")
