"""Runs as MLflow keeps them, without any training."""

from collections.abc import Sequence

import mlflow
from mlflow.entities import Metric, Param, RunTag


def log_run(
    algorithm: str = "m2fdp",
    seed: int = 0,
    accuracies: tuple[float, ...] = (0.5, 0.8),
    status: str = "FINISHED",
    arm: str | None = None,
    version: str | None = None,
    study: str | None = None,
    stage: str | None = None,
    decisions: Sequence[tuple[float, float, float]] = (),
    **params: object,
) -> str:
    """A run whose numbers follow from its accuracies. Returns its id."""
    client = mlflow.MlflowClient()
    run_id = client.create_run("0").info.run_id
    private = algorithm != "hfl"
    metrics = []
    for round_, accuracy in enumerate(accuracies, start=1):
        values = {"accuracy": accuracy, "loss": 1 - accuracy, "energy_j": 2.0 * round_}
        values |= {"delay_s": 3.0 * round_, "wall_s": 0.1}
        if private:
            values["epsilon"] = 1.0 * round_
        metrics += [Metric(name, value, 0, 5 * round_) for name, value in values.items()]
    if private:
        metrics += [Metric("epsilon_nominal", 4.0, 0, 0), Metric("epsilon_verified", 3.9, 0, 0)]
    for round_, values in enumerate(decisions, start=1):
        names = ("control/K", "control/s_trusted", "control/s_untrusted")
        metrics += [
            Metric(name, value, 0, round_) for name, value in zip(names, values, strict=True)
        ]
    tags = {
        "algorithm": algorithm,
        "seed": str(seed),
        "role": "method" if algorithm == "m2fdp" else "baseline",
        "privacy": "verified" if private else "none",
    }
    named = {"arm": arm, "version": version, "study": study, "stage": stage}
    tags |= {key: name for key, name in named.items() if name}
    every = {"algorithm": algorithm, "seed": seed, "cell": run_id, "threads": None} | params
    client.log_batch(
        run_id,
        metrics=metrics,
        params=[Param(key, str(value)) for key, value in every.items()],
        tags=[RunTag(key, value) for key, value in tags.items()],
    )
    client.set_terminated(run_id, status)
    return run_id
