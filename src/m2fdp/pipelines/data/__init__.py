"""The data pipeline: who holds which record."""

from m2fdp.pipelines.data.pipeline import create_pipeline

__all__ = ["create_pipeline"]
