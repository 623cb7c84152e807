"""The pipelines that `kedro run --pipelines=` knows."""

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline

from m2fdp.pipelines import data, topology


def register_pipelines() -> dict[str, Pipeline]:
    """Every pipeline of `m2fdp.pipelines` by its name, and all of them as the default.

    Kedro finds only those that are asked for.
    """
    pipelines = find_pipelines(raise_errors=True)
    everything = sum(pipelines.values(), Pipeline([]))
    if "privacy" in pipelines:
        # A budget can be planned without training.
        pipelines["privacy"] += data.create_pipeline() + topology.create_pipeline()
    return pipelines | {"__default__": everything}
