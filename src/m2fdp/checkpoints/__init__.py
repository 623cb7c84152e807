"""Checkpoints: where a run goes on after its process has been stopped."""
