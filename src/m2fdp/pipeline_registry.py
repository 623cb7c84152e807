"""The pipelines that `kedro run --pipelines=` knows."""

from kedro.framework.project import find_pipelines
from kedro.pipeline import Pipeline

from m2fdp.pipelines import data, features, privacy, topology
from m2fdp.pipelines.data import from_disk


def register_pipelines() -> dict[str, Pipeline]:
    """Every pipeline of `m2fdp.pipelines` by its name; the default is all but attack, audit,
    bound and clock.

    Each runs by itself: what lives in memory only is made again, and what a pipeline before it
    has left on the disk is read. Kedro finds only those that are asked for.
    """
    pipelines = find_pipelines(raise_errors=True)
    # These are runs of their own: their rounds leave no model.
    separate = {"attack", "audit", "bound", "clock"}
    everything = sum((p for name, p in pipelines.items() if name not in separate), Pipeline([]))
    split, promise = data.create_pipeline(), privacy.create_pipeline()
    featured = features.create_pipeline()
    # Their own tables end these, and have the ledger's bounds.
    tested = split + topology.create_pipeline() + promise - promise.only_nodes("print_ledger")
    needs = {
        # They can be had before many runs want them at once.
        "features": split,
        # A budget can be planned, and a promise tested, without training.
        "privacy": split + topology.create_pipeline(),
        "audit": tested,
        "attack": tested + featured,
        "bound": split + featured + topology.create_pipeline() + promise,
        # On the split that lies there, which may be the user's own.
        "training": from_disk() + featured + topology.create_pipeline() + promise,
        "evaluation": from_disk() + featured,
    }
    for name in needs.keys() & pipelines.keys():
        pipelines[name] += needs[name]
    return pipelines | {"__default__": everything}
