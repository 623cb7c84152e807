"""What the room of sources brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"dataset": "m2fdp.sources.config:SourceKeys"},
    datasets={
        "digits": "m2fdp.sources.digits:digits",
        **dict.fromkeys(
            ("mnist", "fashion_mnist", "emnist_letters", "cifar10", "cifar100"),
            "m2fdp.sources.torchvision:read_torchvision",
        ),
        "leaf": "m2fdp.sources.leaf:read_leaf",
        "npz": "m2fdp.sources.arrays:read_npz",
        "synthetic": "m2fdp.sources.synthetic:make_synthetic",
    },
)
