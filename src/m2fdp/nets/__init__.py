"""Networks: small ones of the papers, and those that a client and a server may share."""

# The places where each can be cut.
SPLIT_MODELS = {"resnet": 7, "cnn12": 3}
