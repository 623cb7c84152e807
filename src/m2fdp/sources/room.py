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
        "table": "m2fdp.sources.table:read_table",
    },
    models={"linear": "m2fdp.sources.regression:linear"},
    losses={name: f"m2fdp.sources.regression:with_{name}" for name in ("squared", "huber")},
    facts=("m2fdp.sources.regression:FACTS",),
    metrics={
        "mae": "m2fdp.sources.regression:MAE",
        "rmse": "m2fdp.sources.regression:RMSE",
        "r2": "m2fdp.sources.regression:R2",
        "balanced_accuracy": "m2fdp.sources.metrics:BALANCED",
        "auc": "m2fdp.sources.metrics:AUC",
        "average_precision": "m2fdp.sources.metrics:AVERAGE_PRECISION",
        "f1": "m2fdp.sources.metrics:F1",
        "log_loss": "m2fdp.sources.metrics:LOG_LOSS",
        "brier": "m2fdp.sources.metrics:BRIER",
    },
    given={
        "clients": "m2fdp.sources.table:holders",
        "labels": "m2fdp.sources.regression:check_labels",
    },
    promised=("m2fdp.sources.run:promised",),
    warned=("m2fdp.sources.run:notes",),
)
