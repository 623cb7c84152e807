"""Load a data set and deal its records to the devices."""

from kedro.pipeline import Node, Pipeline

from m2fdp.data.sources import load_dataset
from m2fdp.pipelines.data.nodes import check_split, draw_label_distribution, split


def create_pipeline() -> Pipeline:
    """Parameters to data set, manifest and label distribution."""
    return from_disk() + Pipeline(
        [
            Node(
                split,
                [
                    "dataset",
                    "params:partition",
                    "params:topology",
                    "params:model",
                    "params:training",
                    "params:privacy",
                    "params:seed",
                ],
                "manifest",
                name="split",
            ),
            Node(
                draw_label_distribution,
                "manifest",
                "label_distribution",
                name="draw_label_distribution",
            ),
        ]
    )


def from_disk() -> Pipeline:
    """Parameters and a manifest, which may be the user's own, to what is trained and tested on."""
    return Pipeline(
        [
            Node(load_dataset, "params:dataset", "dataset", name="load_dataset"),
            Node(
                check_split,
                [
                    "manifest",
                    "dataset",
                    "params:topology",
                    "params:model",
                    "params:training",
                    "params:privacy",
                ],
                "checked_manifest",
                name="check_split",
            ),
        ]
    )
