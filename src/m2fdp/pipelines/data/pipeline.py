"""Load a data set and deal its records to the devices."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.data import nodes


def create_pipeline() -> Pipeline:
    """Configuration and plan to data set, manifest and label distribution."""
    return from_disk() + Pipeline(
        [
            Node(nodes.split, ["config", "plan", "dataset"], "manifest", name="split"),
            Node(
                nodes.draw_label_distribution,
                "manifest",
                "label_distribution",
                name="draw_label_distribution",
            ),
        ]
    )


def from_disk() -> Pipeline:
    """The same and a manifest, which may be the user's own, to the experiment."""
    return Pipeline(
        [
            Node(nodes.load, "config", "dataset", name="load_dataset"),
            Node(
                nodes.assemble,
                ["config", "plan", "dataset", "manifest"],
                "experiment",
                name="assemble",
            ),
        ]
    )
