"""Canary audits: empirical lower bounds on epsilon from the engine's own rounds."""

from m2fdp.audit.canaries import Canaries, plant
from m2fdp.audit.run import Bounds, audit, bounds_table, listen

__all__ = ["Bounds", "Canaries", "audit", "bounds_table", "listen", "plant"]
