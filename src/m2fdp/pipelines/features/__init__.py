"""The features pipeline: what models see of a record."""

from m2fdp.pipelines.features.pipeline import create_pipeline

__all__ = ["create_pipeline"]
