"""Kedro pipelines: thin nodes over the library, and what they share about files and runs."""
