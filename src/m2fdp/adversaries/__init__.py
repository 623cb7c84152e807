"""Canary audits: empirical lower bounds on epsilon from the engine's own rounds."""

from m2fdp.adversaries.audit import Bounds, audit, bounds_table, listen
from m2fdp.adversaries.canaries import AuditedRun, Canaries, plant

__all__ = ["AuditedRun", "Bounds", "Canaries", "audit", "bounds_table", "listen", "plant"]
