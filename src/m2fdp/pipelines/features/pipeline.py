"""The features pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.features import nodes


def create_pipeline() -> Pipeline:
    """Experiment to the same with its features on the disk, for whatever learns or predicts."""
    return Pipeline(
        [Node(nodes.compute_features, "experiment", "prepared_experiment", name="compute_features")]
    )
