"""Where packages went: who imports an old path reads the new one in one line."""

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_CORE = "algorithms config data errors files formatting models privacy schedule streams topology"
MOVED = {name: f"core.{name}" for name in _CORE.split()} | {
    "simulation": "core.engine",
    "own_code": "given.own_code",
    "yaml_files": "given.yaml_files",
    "experiments": "core.experiment",
    "tiering": "tiers",
    "cluster": "processes",
}


class Moved:
    """The last finder that Python asks: it knows packages that stood at the top until 0.20."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds nothing.

        Raises:
            ModuleNotFoundError: the package has moved, and where to.
        """
        package, _, rest = name.partition(".")
        if package == "m2fdp" and rest in MOVED:
            raise ModuleNotFoundError(
                f"{name} is m2fdp.{MOVED[rest]} since 0.21; what a user builds on is imported "
                "from m2fdp.extend",
                name=name,
            )
        return None
