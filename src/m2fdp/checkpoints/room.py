"""What the room of checkpoints brings to the core."""

from m2fdp.core.rooms import Room

# Read at once, before anybody changes the files.
ROOM = Room(loaded=("m2fdp.checkpoints.own_sources:sources",))
