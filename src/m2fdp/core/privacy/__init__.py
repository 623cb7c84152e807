"""Mechanisms, their calibration, and what an accountant upholds of them."""
