"""The pipelines that `kedro run --pipelines=` knows."""

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline

from m2fdp.pipelines import data, privacy, topology


def register_pipelines() -> dict[str, Pipeline]:
    """Every pipeline of `m2fdp.pipelines` by its name, and all but the audit as the default.

    Kedro finds only those that are asked for.
    """
    pipelines = find_pipelines(raise_errors=True)
    # An audit is a run of its own: its rounds train no model.
    everything = sum((p for name, p in pipelines.items() if name != "audit"), Pipeline([]))
    # A budget can be planned, and a promise tested, without training.
    inputs = data.create_pipeline() + topology.create_pipeline()
    if "privacy" in pipelines:
        pipelines["privacy"] += inputs
    if "audit" in pipelines:
        pipelines["audit"] += inputs + privacy.create_pipeline()
    return pipelines | {"__default__": everything}
