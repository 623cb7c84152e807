"""Convergence bounds, and what they bound, measured along a run."""
