"""What papers say: measures of runs, claims about them, and the verdict on each claim."""
