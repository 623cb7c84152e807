"""The features pipeline: what models see of a record."""

import logging
import time

from kedro.pipeline import Pipeline

from m2fdp.core.config import PIXELS
from m2fdp.experiment import Experiment
from m2fdp.features.recipe import fitted_on
from m2fdp.pipelines.datasets import node
from m2fdp.progress import items_bar

logger = logging.getLogger(__name__)


def compute_features(experiment: Experiment) -> Experiment:
    """The experiment, once its records lie on the disk as what models take."""
    features = experiment.config.features
    if features.map == PIXELS:
        return experiment
    started = time.monotonic()
    with items_bar("features", tell=logger.info) as on_chunk:
        experiment.inputs_of(experiment.dataset, on_chunk)
    n_numbers, sources = experiment.input_shape[0], ", ".join(fitted_on(features))
    line = "%s features of %d numbers a record, fitted on %s and on no record (%.0f s)"
    logger.info(line, features.map, n_numbers, sources, time.monotonic() - started)
    return experiment


def create_pipeline() -> Pipeline:
    """Experiment to the same with its features on the disk, for whatever learns or predicts."""
    return Pipeline([node(compute_features, "experiment", "prepared_experiment")])
