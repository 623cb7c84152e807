"""Kedro's settings of this project, and the first of its modules that a command imports."""

from m2fdp import startup

startup.end_command_in_one_line()
with startup.imports_uncollected():
    from m2fdp.hooks import RunHooks
    from m2fdp.pipelines.catalog import UninterruptedCatalog
    from m2fdp.pipelines.configuration import StrictConfigLoader
    from m2fdp.pipelines.mlflow_internals import read_telemetry_setting
    from m2fdp.pipelines.tracking_hooks import TrackingHooks
startup.set_environment()
read_telemetry_setting()  # Kedro's plugins have imported mlflow already

HOOKS = (TrackingHooks(), RunHooks())
# TrackingHooks is that plugin's hook, adapted.
DISABLE_HOOKS_FOR_PLUGINS = ("kedro_mlflow",)

DATA_CATALOG_CLASS = UninterruptedCatalog

CONFIG_LOADER_CLASS = StrictConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    # An environment holds only the keys that differ, down to single keys of a block.
    "merge_strategy": {"parameters": "soft"},
}
