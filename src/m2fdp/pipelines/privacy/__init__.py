"""Calibrate the mechanism and account for it: who learns how much about whom."""

from m2fdp.pipelines.privacy.pipeline import create_pipeline

__all__ = ["create_pipeline"]
