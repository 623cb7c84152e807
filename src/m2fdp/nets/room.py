"""What the room of networks brings to the core."""

from m2fdp.core.rooms import Room

_SMALL = {name: f"m2fdp.nets.small:{name}" for name in ("dense", "lenet", "cnn2", "cnn12")}
ROOM = Room(
    blocks={"model": "m2fdp.nets.config:ResnetKeys"},
    models=_SMALL | {"resnet": "m2fdp.nets.resnet:resnet"},
)
