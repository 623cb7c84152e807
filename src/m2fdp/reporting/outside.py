"""What a private run leaves that epsilon does not cover: said here once, for the run's tag
`diagnostic`, for `outside_the_promise` in privacy_summary.json and for docs/privacy/outside.md."""

from dataclasses import dataclass

from m2fdp.core.metrics import DELAY, ENERGY, names_of


@dataclass(frozen=True)
class Clear:
    """Files and entries of MLflow that tell of private records, or of what must stay secret."""

    tells: str  # what they tell of
    datasets: tuple[str, ...] = ()  # names in the catalog
    # What the catalog has not: files of the cell, and of MLflow `metric NAME`, `tag NAME`,
    # `parameter NAME`, `input FIELD` of a data set and `run FIELD`; `*` is anything.
    others: tuple[str, ...] = ()
    made_by: str = ""  # the option by which a run has them; "" = training

    def __str__(self) -> str:
        made_by = self.made_by and f" ({self.made_by})"
        return f"{', '.join(self.datasets + self.others)}{made_by}: {self.tells}"


CLEAR = (
    Clear(
        "who holds which record, with which label, without noise; by a digest any guess at it can "
        "be tested",
        ("manifest", "label_distribution"),
        (
            *("manifest_checks.html", "manifest_checks.passed", "table_checks.html"),
            *("table_checks.passed", "verdict.json"),
            *("tag split_sha256", "input digest"),
        ),
    ),
    Clear(
        "accuracy and loss on the records of the cloud, after every evaluated round, and step "
        "sizes that follow them (training.plateau)",
        ("round_metrics", "accuracy_curve", "run_summary"),
        ("metric accuracy", "metric loss", "metric tiers/eta"),
    ),
    Clear(
        "the same of the trained model, label by label, and client by client where records name "
        "theirs",
        (
            *("confusion_matrix", "confusion_matrix_figure"),
            *("metrics_by_client", "metrics_by_client_figure"),
        ),
    ),
    Clear(
        "accuracy, the digest of the split and the seed",
        ("privacy_card",),
        ("tag mlflow.note.content",),
    ),
    Clear(
        "the seed, itself, in names of a study's cells, or in a digest: "
        "whoever knows it draws the noise again and takes it off",
        ("model_configuration",),
        (
            *("verdict.json", "parameter seed", "tag seed", "tag cell", "tag cell_hash"),
            *("tag kedro_command", "tag mlflow.runName", "run run_name"),
        ),
    ),
    Clear(
        "how long rounds took, which may grow with the records that were drawn",
        others=("metric wall_s", "run start_time", "run end_time", "run timestamps"),
    ),
    Clear(
        "where a run that is cut off goes on, its seed and accuracy among it, and why it ended, "
        "which may name records",
        others=("checkpoints/*", "unsent.json", "tag ended"),
    ),
    Clear(
        "features of every record, which tell of it what its pixels do",
        others=("data/04_feature/*",),
    ),
    Clear(
        "training records themselves, beside what an attack makes of them or tells of their "
        "membership",
        ("attack", "attack_figure"),
        ("attack/*", "metric attack/*", "tag attack_infinite"),
        "--pipelines=attack",
    ),
    Clear(
        "how far the records that neighbours differ in move messages, without noise "
        "(audit.method: neighbours); canaries are nobody's",
        ("audit", "audit_bounds"),
        ("metric audit_epsilon_*",),
        "--pipelines=audit",
    ),
    Clear(
        "loss, gradients and curvature over all training records, and what is estimated from them",
        ("gradient_norms", "bound", "bound_figure", "bound_summary"),
        made_by="--pipelines=bound",
    ),
    Clear(
        "decisions that follow un-noised gradients, where beta is estimated, and what they cost; "
        "epsilon is then conditional",
        others=("metric control/*", *(f"metric {name}" for name in names_of((ENERGY, DELAY)))),
        made_by="control.enabled",
    ),
)
DIAGNOSTICS = frozenset(name for clear in CLEAR for name in clear.datasets)
