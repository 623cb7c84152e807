"""Try what an observer can take: reconstruction and membership from the run's own messages."""

from m2fdp.pipelines.attack.pipeline import create_pipeline

__all__ = ["create_pipeline"]
