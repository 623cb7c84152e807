"""What the room of networks brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(models={"cnn12": "m2fdp.nets.cnn12:cnn12", "resnet": "m2fdp.nets.resnet:resnet"})
