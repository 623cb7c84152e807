"""What reporting brings to the core: which of a run's outputs epsilon does not cover."""

from m2fdp.core.rooms import Room

ROOM = Room(outside=("m2fdp.reporting.outside:CLEAR",))
