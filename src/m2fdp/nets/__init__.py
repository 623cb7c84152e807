"""Convolutional networks that a client and a server may share: J's cnn12 and D's ResNets."""

# The places where each can be cut.
SPLIT_MODELS = {"resnet": 7, "cnn12": 3}
