"""What the room of convergence brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    features=("m2fdp.convergence.facts:FEATURES",), verb_features=("m2fdp.convergence.facts:BOUND",)
)
