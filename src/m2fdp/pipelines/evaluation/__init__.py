"""What the trained model is worth: figures, confusion matrix, summary.

What is evaluated may be of an earlier run, so it is checked before anything is written.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from kedro.pipeline import Pipeline
from torch import Tensor

from m2fdp.checkpoints.files import differences
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import Config, completed, essentials
from m2fdp.core.data.manifest import DIGEST, file_of
from m2fdp.core.engine.training import one_class_only
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.metrics import ACCURACY, EPSILON, EVALUATED, SCORE, names_of, of_last
from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import node
from m2fdp.reporting import figures
from m2fdp.reporting.by_client import draw_by_client, print_by_client
from m2fdp.reporting.cards import FIGURES, Card, privacy_card, subject_of
from m2fdp.reporting.naming import command
from m2fdp.reporting.pictures import Drawing
from m2fdp.reporting.tables import print_result
from m2fdp.tables.table import strata_names

MODEL = "model.pt"
# A model and its promise stay the same whatever these say, and whatever audits and attacks ask.
FREE_KEYS = frozenset({"dataset.root", "dataset.download", "device", "training.evaluate_on"})
FREE_BLOCKS = ("attack.", "audit.")
SUMMARY = "privacy_summary.json"
NUMBERS = ("round", *names_of(EVALUATED))


def check_trained_with(made_with: Mapping[str, Any], config: Config, remedy: str) -> None:
    """Refuse another configuration than the model's."""
    for key, (before, value) in changed(made_with, config).items():
        raise InputError(key, value, f"{MODEL} was trained with {before}; {remedy}")


def changed(made_with: Mapping[str, Any], config: Config) -> dict[str, tuple[object, object]]:
    """The keys in which a configuration is not the model's, with both values."""
    every = differences(completed(made_with), completed(essentials(config)))
    free = FREE_KEYS.union(key for key in every if key.startswith(FREE_BLOCKS))
    return {key: values for key, values in every.items() if key not in free}


def check_model(
    state_dict: dict[str, Tensor], made_with: Mapping[str, Any], experiment: Experiment
) -> dict[str, Tensor]:
    """The state dict, if it is of a model that this experiment trains."""
    config, model = experiment.config, experiment.model
    check_trained_with(made_with, config, "give that, or train anew")
    named = model.unflatten(model.initial_vector())
    expected, actual = ({k: tuple(v.shape) for k, v in x.items()} for x in (named, state_dict))
    if actual != expected:
        shapes = f"has the parameters {_listed(expected)}; {MODEL} holds {_listed(actual)}"
        raise InputError("model.name", config.model.name, shapes)
    for name, tensor in state_dict.items():
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            damage = f"{name} of {MODEL} is not all numbers"
            raise InputError("model.name", config.model.name, damage)
    return state_dict


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    texts = [f"{name} {shape}" for name, shape in shapes.items()]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if texts[3:] else "")


def tell_clients(
    experiment: Experiment, state_dict: dict[str, Tensor]
) -> tuple[pd.DataFrame, Drawing | tuple[()]]:
    """What the model is worth at each client, printed, too, and as a figure; nothing where nobody
    says whose records are."""
    by_client = experiment.by_client(state_dict)
    print_by_client(by_client)
    return by_client, () if by_client.empty else Drawing.of(draw_by_client, by_client)


def check_rounds(
    round_metrics: pd.DataFrame,
    privacy_summary: Mapping[str, Any],
    counts: pd.DataFrame,
    experiment: Experiment,
) -> pd.DataFrame:
    """The metrics of the rounds, if the model and the privacy summary are those of the last."""
    file = file_of(round_metrics)
    lacking = [name for name in NUMBERS if name not in round_metrics]
    if lacking or round_metrics.empty:
        raise InputError(file, ", ".join(lacking) or "no row", "is missing; train anew")
    of_numbers = experiment.dataset.label_range is not None
    may_be_nan = {EPSILON.name, SCORE.name, *(ACCURACY.name,) * of_numbers}
    for name in (*NUMBERS, *({SCORE.name} & {*round_metrics})):
        column, may_lack = round_metrics[name], name in may_be_nan
        if not pd.api.types.is_numeric_dtype(column) or (not may_lack and column.isna().any()):
            raise InputError(file, name, "is not a number in every row; train anew")
    last = round_metrics.iloc[-1]
    n_records = counts.to_numpy().sum()
    accuracy = np.diagonal(counts.to_numpy()).sum() / n_records
    evaluate_on = experiment.config.training.evaluate_on
    # Another device than the one that trained may round a record over a tie.
    if abs(accuracy - last[ACCURACY.name]) > max(0.005, 1.5 / n_records):
        problem = (
            f"{MODEL} has {accuracy:.4g} on the {evaluate_on} records; both must be of one run and "
            "one training.evaluate_on (--to-outputs=confusion_matrix_figure needs no metrics)"
        )
        raise InputError(file, f"accuracy {last['accuracy']:.4g} in the last round", problem)
    _check_summary(privacy_summary, float(last["epsilon"]))
    return round_metrics


def _check_summary(summary: Mapping[str, Any], epsilon: float) -> None:
    """A privacy summary and the last round's epsilon, NaN without privacy, are of one run."""
    guarantee = summary.get("guarantee")
    if guarantee not in ("none", "verified", "conditional"):
        valid = "valid: none, verified, conditional; train anew"
        raise InputError(SUMMARY, f"guarantee {guarantee}", valid)
    name = EPSILON_NAMES.get(guarantee, "epsilon")
    promised: Any = summary.get(name)
    try:
        agrees = math.isclose(float(promised), epsilon, rel_tol=1e-6)
    except (TypeError, ValueError):  # such as None
        agrees = False
    if not (math.isnan(epsilon) if guarantee == "none" else agrees):
        last = f"the last round of round_metrics.csv has {epsilon:g}"
        problem = f"{last}: they are not of one run; train anew"
        raise InputError(SUMMARY, f"{name} {promised}", problem)


def draw_confusions(counts: pd.DataFrame, experiment: Experiment) -> Drawing:
    """The confusion matrix as a figure."""
    arguments = counts.to_numpy(), strata_names(experiment.dataset)
    if experiment.dataset.label_range is None:
        return Drawing.of(figures.confusion_matrix, *arguments)
    return Drawing.of(figures.confusion_matrix, *arguments, "In the right tenth")


def draw_accuracy(
    round_metrics: pd.DataFrame, privacy_summary: dict[str, Any], algorithm: str, seed: int
) -> Drawing:
    """Accuracy and epsilon over the rounds."""
    title = f"{get_algorithm(algorithm).title}, seed {seed}"
    return Drawing.of(figures.accuracy_curve, round_metrics, title, privacy_summary["guarantee"])


def summarise(
    round_metrics: pd.DataFrame,
    privacy_summary: dict[str, Any],
    counts: pd.DataFrame,
    experiment: Experiment,
) -> dict[str, Any]:
    """The last evaluated round, epsilon, the devices' score if they give one, and the one class
    that a model answers, if the cloud holds the records; for JSON."""
    last, config = round_metrics.iloc[-1], experiment.config
    summary = {"algorithm": config.algorithm, "seed": config.seed, "rounds": int(last["round"])}
    summary |= of_last(last)
    of_cloud = config.partition.held_out_by == "cloud" and ACCURACY.name in summary
    if of_cloud and (answers := one_class_only(counts.to_numpy())) is not None:
        summary["answers"] = answers
    if not math.isnan(score := float(last.get(SCORE.name, math.nan))):
        summary[SCORE.name] = score
    promised = ("epsilon_nominal", *EPSILON_NAMES.values(), "delta")
    told = {name: privacy_summary[name] for name in promised if name in privacy_summary}
    return summary | {"privacy": privacy_summary["guarantee"]} | told


def fill_card(
    experiment: Experiment,
    summary: dict[str, Any],
    privacy_summary: dict[str, Any],
    ledger: pd.DataFrame,
) -> Card:
    """What a reviewer must know of the run."""
    split, repeat = experiment.manifest.attrs.get(DIGEST, ""), command(experiment.config)
    return privacy_card(subject_of(experiment), privacy_summary, summary, ledger, repeat, split)


def write_card(card: Card, drawn: bool) -> str:
    """The card in Markdown; the figures lie beside it, if they are drawn."""
    links = ", ".join(f"[{shows}]({name})" for name, shows in FIGURES.items())
    return card.markdown([f"Figures: {links}."] if drawn else [])


def create_pipeline() -> Pipeline:
    """Model and round metrics, as they are checked, to figures, summary and card."""
    model = ["model", "model_configuration", "experiment"]
    predicting, counted = ["prepared_experiment", "checked_model"], "confusion_matrix"
    others = ["privacy_summary", "confusion_matrix", "experiment"]
    rounds, run = ["round_metrics", *others], ["params:algorithm", "params:seed"]
    card = ["experiment", "run_summary", "privacy_summary", "privacy_ledger"]
    return Pipeline(
        [
            node(check_model, model, "checked_model"),
            node(Experiment.confusion_matrix, predicting, counted, "count_confusions"),
            node(tell_clients, predicting, ["metrics_by_client", "metrics_by_client_figure"]),
            node(check_rounds, rounds, "checked_rounds"),
            node(draw_confusions, [counted, "experiment"], "confusion_matrix_figure"),
            node(draw_accuracy, ["checked_rounds", "privacy_summary", *run], "accuracy_curve"),
            node(summarise, ["checked_rounds", *others], "run_summary"),
            node(fill_card, card, "card"),
            node(write_card, ["card", "params:figures"], "privacy_card"),
            node(print_result, "run_summary", None),
        ]
    )
