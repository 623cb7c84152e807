"""What a run says whose messages are read in sums."""

from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.summary import Promised
from m2fdp.core.streams import seeded
from m2fdp.secure_aggregation.survivors import count_lost, step_in_sums
from m2fdp.secure_aggregation.terms import LARGEST_GRID

# Which sums are lost is drawn before training; more local steps are not looked at.
_MOST_STEPS_COUNTED = 20_000


def promised(assembly: Assembly) -> Promised:
    """What epsilon rests on where some messages are read as sums only."""
    sums, colluding = assembly.config.secure_aggregation, assembly.config.threat.colluding
    if not sums.layers:
        return Promised()
    colluders = f", of whom at most {colluding} tell what noise they drew" if colluding else ""
    lines = [
        "secure aggregation: parties follow the protocol, and of those who send the reader learns "
        f"their sum and who is in it, nothing else{colluders}"
    ]
    if sums.noise == "shared":
        lines.append("no sum is read without the noise of as many honest senders as are counted on")
    if sums.protocol == "masks":
        lines += [
            "masks hide what they cover: X25519, HKDF and ChaCha20 are what they are held to be",
            f"a sum of Gaussians on a grid of less than {LARGEST_GRID:g} of their deviation "
            "behaves as a Gaussian",
            "vectors that are summed without noise of their own, M numbers each, count as if not "
            "rounded: on a grid 1/f a record moves them by up to sqrt(M)/f more",
        ]
    return Promised(tuple(lines))


def lost_sums(assembly: Assembly) -> list[str]:
    """How many sums nobody will read; not where counting takes long."""
    config, run_plan, calibrated = assembly.config, assembly.run_plan, assembly.calibration
    (network, *_), mechanism = run_plan.networks, calibrated.mechanism
    plans = run_plan.rounds[: calibrated.affordable_rounds]
    steps = sum(len(plan.layers) for plan in plans)
    if not network.sums.dropout or steps > _MOST_STEPS_COUNTED:
        return []
    every_step = step_in_sums(network, mechanism)
    lost, total = count_lost(network, plans, seeded(config.seed, b"").sampling, every_step)
    if not lost:
        return []
    return [
        f"{lost:,} of {total:,} sums lose too many senders to be read: training goes on as if "
        "none of them had moved (secure_aggregation.dropout, threshold)"
    ]
