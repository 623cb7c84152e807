"""The pipelines that `kedro run --pipelines=` knows."""

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline


def register_pipelines() -> dict[str, Pipeline]:
    """Every pipeline of `m2fdp.pipelines` by its name, and all of them as the default."""
    pipelines = find_pipelines(raise_errors=True)
    everything = sum(pipelines.values(), Pipeline([]))
    # A budget can be planned without training.
    pipelines["privacy"] += pipelines["data"] + pipelines["topology"]
    return pipelines | {"__default__": everything}
