"""Lay out the network: tree, trust and noise plan; table and drawing."""

from m2fdp.pipelines.topology.pipeline import create_pipeline

__all__ = ["create_pipeline"]
