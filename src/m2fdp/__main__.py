"""`python -m m2fdp`: what `kedro run` does, from a folder of the project."""

# ruff: noqa: E402

from m2fdp.interruption import end_in_one_line

end_in_one_line()  # before the imports, which take seconds

from pathlib import Path

from kedro.framework.startup import bootstrap_project
from kedro.utils import find_kedro_project

from m2fdp.cli import run


def main() -> None:
    """Run the pipelines that the command line names."""
    bootstrap_project(find_kedro_project(Path.cwd()) or Path.cwd())
    run()


if __name__ == "__main__":
    main()
