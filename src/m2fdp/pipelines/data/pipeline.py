"""Load a data set and deal its records to the devices."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.data import nodes


def create_pipeline() -> Pipeline:
    """Parameters to data set, manifest and label distribution."""
    return from_disk() + Pipeline(
        [
            Node(nodes.split, ["config", "dataset"], "manifest", name="split"),
            Node(
                nodes.draw_label_distribution,
                "manifest",
                "label_distribution",
                name="draw_label_distribution",
            ),
        ]
    )


def from_disk() -> Pipeline:
    """Parameters and a manifest, which may be the user's own, to the experiment."""
    return configured() + Pipeline(
        [
            Node(nodes.load, "config", "dataset", name="load_dataset"),
            Node(nodes.assemble, ["config", "dataset", "manifest"], "experiment", name="assemble"),
        ]
    )


def configured() -> Pipeline:
    """Parameters to the configuration that all other nodes take."""
    return Pipeline([Node(nodes.configure, "parameters", "config", name="configure")])
