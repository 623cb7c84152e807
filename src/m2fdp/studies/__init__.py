"""Studies: grids of runs, each cell one Kedro session in a worker process."""
