"""Calibrate the mechanism and train."""

from m2fdp.pipelines.training.pipeline import create_pipeline

__all__ = ["create_pipeline"]
