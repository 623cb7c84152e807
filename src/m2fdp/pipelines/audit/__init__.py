"""Test the promise: canaries in the engine's own rounds against the ledger's bounds."""

from m2fdp.pipelines.audit.pipeline import create_pipeline

__all__ = ["create_pipeline"]
