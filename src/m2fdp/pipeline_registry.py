"""The pipelines that `kedro run --pipelines=` knows."""

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline

from m2fdp.pipelines import data, privacy, topology


def register_pipelines() -> dict[str, Pipeline]:
    """Every pipeline of `m2fdp.pipelines` by its name; the default is all but audit and bound.

    Kedro finds only those that are asked for.
    """
    pipelines = find_pipelines(raise_errors=True)
    # These are runs of their own: their rounds leave no model.
    alone = {"audit", "bound"}
    everything = sum((p for name, p in pipelines.items() if name not in alone), Pipeline([]))
    # A budget can be planned, and a promise tested, without training.
    inputs = data.create_pipeline() + topology.create_pipeline()
    if "privacy" in pipelines:
        pipelines["privacy"] += inputs
    for name in alone & pipelines.keys():
        pipelines[name] += inputs + privacy.create_pipeline()
    return pipelines | {"__default__": everything}
