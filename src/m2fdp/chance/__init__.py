"""Devices that join a round by chance: updates are added up instead of models."""
