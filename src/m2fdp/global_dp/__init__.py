"""Noise up and down on whole models (paper G), with its top-up and its accountant."""
