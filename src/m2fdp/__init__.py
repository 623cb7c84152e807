"""Differentially private federated learning over multi-tier networks."""

from importlib.metadata import version

__version__ = version("m2fdp")
