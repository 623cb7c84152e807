"""Train, and hold the convergence bound against what is measured."""

from m2fdp.pipelines.bound.pipeline import create_pipeline

__all__ = ["create_pipeline"]
