"""`python -m m2fdp`: what `kedro run` does, from a folder of the project."""

# ruff: noqa: E402

from m2fdp.interruption import end_in_one_line

end_in_one_line()  # before the imports, which take seconds

from pathlib import Path

from kedro.framework.startup import bootstrap_project

from m2fdp.cli import run
from m2fdp.command_errors import BadInput
from m2fdp.core.errors import InputError
from m2fdp.pipelines.configuration import project_of


def main() -> None:
    """Run the pipelines that the command line names."""
    try:
        project = project_of(Path.cwd())
    except InputError as error:
        BadInput(str(error)).show()
        raise SystemExit(BadInput.exit_code) from None
    bootstrap_project(project)
    run()


if __name__ == "__main__":
    main()
