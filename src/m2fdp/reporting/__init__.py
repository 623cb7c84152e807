"""Tables and figures from the records of runs."""
