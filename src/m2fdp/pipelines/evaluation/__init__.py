"""What the trained model is worth: figures, confusion matrix, summary."""

from m2fdp.pipelines.evaluation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
