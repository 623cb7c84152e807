"""What a run's promise rests on where devices send activations to a server that nobody trusts."""

from __future__ import annotations

from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.summary import Promised
from m2fdp.tiers.split_noise import LABELS


def promised(assembly: Assembly) -> Promised:
    """How records come to who is sent their activations, and what becomes of their labels; nothing
    where no device sends any."""
    ledger, privacy = assembly.calibration.mechanism.ledger, assembly.config.privacy
    if not any(line.kind == LABELS for line in ledger.lines):
        return Promised()
    sentence = "neighbours differ in a record's features: its label is public (privacy.labels)"
    if privacy.labels != "public":
        sentence = (
            f"labels are drawn once a record and for ever: {privacy.label_epsilon:g} of epsilon is "
            "theirs, and another run on the same records draws, and spends, anew"
        )
    activations = {"clip": privacy.activation_clip, "share_of_budget": privacy.activation_share}
    entries = {
        "sampling": "poisson, seen by who is sent activations",
        "labels": privacy.labels,
        "activations": activations,
    }
    return Promised((sentence,), entries)
