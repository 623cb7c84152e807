"""What the room of tables brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"dataset": "m2fdp.tables.config:TableKeys"},
    datasets={"table": "m2fdp.tables.table:read_table"},
    models={"linear": "m2fdp.tables.regression:linear"},
    losses={name: f"m2fdp.tables.regression:with_{name}" for name in ("squared", "huber")},
    facts=("m2fdp.tables.regression:FACTS",),
    metrics={
        "mae": "m2fdp.tables.regression:MAE",
        "rmse": "m2fdp.tables.regression:RMSE",
        "r2": "m2fdp.tables.regression:R2",
        "balanced_accuracy": "m2fdp.tables.metrics:BALANCED",
        "auc": "m2fdp.tables.metrics:AUC",
        "average_precision": "m2fdp.tables.metrics:AVERAGE_PRECISION",
        "f1": "m2fdp.tables.metrics:F1",
        "log_loss": "m2fdp.tables.metrics:LOG_LOSS",
        "brier": "m2fdp.tables.metrics:BRIER",
    },
    given={
        "clients": "m2fdp.tables.table:holders",
        "labels": "m2fdp.tables.regression:check_labels",
    },
    promised=("m2fdp.tables.run:promised",),
    warned=("m2fdp.tables.run:notes",),
)
