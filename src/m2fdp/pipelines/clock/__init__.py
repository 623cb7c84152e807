"""D's tables from the clock alone: who trains what, and how long a round takes, untrained."""

from m2fdp.pipelines.clock.pipeline import create_pipeline

__all__ = ["create_pipeline"]
