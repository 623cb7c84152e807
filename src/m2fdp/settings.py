"""Kedro's settings of this project, and the first of its modules that a command imports."""

from collections.abc import Iterator
from typing import Any

from m2fdp import startup
from m2fdp.command_errors import have_streams

startup.end_command_in_one_line()
startup.set_environment()
have_streams()
startup.log_as_in_the_root()
startup.let_libraries_warn()
startup.defer_plugin_commands()
with startup.imports_uncollected():
    from m2fdp.pipelines.configuration import StrictConfigLoader, UninterruptedCatalog


class _Hooks:
    """The project's hooks, imported when a session asks for them.

    They bring torch and MLflow. `kedro --help`, and a command line that is refused, need neither.
    """

    def __init__(self) -> None:
        self._made: tuple[Any, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        if not self._made:
            with startup.imports_uncollected():
                from m2fdp.hooks import RunHooks
                from m2fdp.pipelines.mlflow_internals import set_telemetry_client
            set_telemetry_client()  # somebody may have imported mlflow before the settings
            self._made = (RunHooks(),)
        return iter(self._made)


HOOKS = _Hooks()
# RunHooks opens the runs.
DISABLE_HOOKS_FOR_PLUGINS = ("kedro_mlflow",)

DATA_CATALOG_CLASS = UninterruptedCatalog

CONFIG_LOADER_CLASS = StrictConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    # An environment holds only the keys that differ, down to single keys of a block.
    "merge_strategy": {"parameters": "soft"},
}
