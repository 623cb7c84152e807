"""What an observer can take: canary audits, reconstruction and membership attacks on the messages
that it reads in the engine's own rounds."""

from m2fdp.adversaries.audit import Bounds, audit, bounds_table, listen
from m2fdp.adversaries.canaries import AuditedRun, Canaries, plant
from m2fdp.adversaries.kept import Kept
from m2fdp.adversaries.knowledge import Knowledge
from m2fdp.adversaries.membership import Membership
from m2fdp.adversaries.messages import Message
from m2fdp.adversaries.reconstruction import Reconstruction, Records, best_of, reconstruct
from m2fdp.adversaries.views import broadcasts, overhear

__all__ = [
    "AuditedRun",
    "Bounds",
    "Canaries",
    "Kept",
    "Knowledge",
    "Membership",
    "Message",
    "Reconstruction",
    "Records",
    "audit",
    "best_of",
    "bounds_table",
    "broadcasts",
    "listen",
    "overhear",
    "plant",
    "reconstruct",
]
