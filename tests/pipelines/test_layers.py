"""Layers of the catalog, which Kedro-Viz draws below each other."""

import re
from graphlib import TopologicalSorter

import yaml
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from tests.finished import REPOSITORY

CATALOG = (REPOSITORY / "conf" / "base" / "catalog.yml").read_text()
# Values that are resolved when a run begins say nothing of layers.
ENTRIES = yaml.safe_load(re.sub(r"\$\{[^}]*\}", "x", CATALOG))
LAYERS = {
    name: entry["metadata"]["kedro-viz"]["layer"]
    for name, entry in ENTRIES.items()
    if "metadata" in entry
}


def layers_above(pipeline):
    """For each layer those of what its datasets are made of, through what has none itself."""
    made_of = {output: node.inputs for node in pipeline.nodes for output in node.outputs}

    def layered(dataset):
        for origin in made_of.get(dataset, ()):
            yield from [LAYERS[origin]] if origin in LAYERS else layered(origin)

    above = {layer: set() for layer in LAYERS.values()}
    for dataset, layer in LAYERS.items():
        above[layer] |= set(layered(dataset)) - {layer}
    return above


def test_no_layer_is_above_and_below_another():
    bootstrap_project(REPOSITORY)
    assert {"__default__", "attack", "audit"} <= pipelines.keys()
    for pipeline in pipelines.values():
        order = list(TopologicalSorter(layers_above(pipeline)).static_order())  # refuses a circle
        assert set(order) == set(LAYERS.values())
