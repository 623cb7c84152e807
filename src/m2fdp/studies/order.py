"""What was asked for when a study is run, and the study that it means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m2fdp.core.config import flatten
from m2fdp.studies.study import SWEEP, Study, load_study, scaled
from m2fdp.studies.sweep import check_not_swept, sweep, sweep_keys


@dataclass(frozen=True)
class Order:
    """What was asked for: a study's file, one of its scales, an environment, parameters."""

    name: str
    scale: str | None = None  # None = the study itself
    env: str | None = None  # the Kedro environment; None = the study's own, or Kedro's default
    params: Mapping[str, Any] = field(default_factory=dict)  # nested; override shared ones
    # Of a sweep, as `sweep` reads them.
    over: Sequence[str] = ()
    seeds: int | None = None

    @property
    def identity(self) -> str:
        """In another environment or scale a study is another one, with files of its own; so is a
        sweep over other keys."""
        keys = (re.sub(r"[^\w.]+", "_", key) for key in sweep_keys(self.over))
        return "-".join(filter(None, [self.name, *keys, self.env, self.scale]))

    @property
    def run_name(self) -> str:
        """The identity, and what `--params` changes."""
        changed = flatten(dict(self.params)).items()
        labels = [re.sub(r"[^\w.+-]+", "_", f"{key}_{value}") for key, value in changed]
        return "-".join([self.identity, *labels])

    @property
    def command(self) -> str:
        """What a user types for it."""
        params = ",".join(f"{key}={value}" for key, value in flatten(dict(self.params)).items())
        options = {"seeds": self.seeds, "scale": self.scale, "env": self.env, "params": params}
        words = [f"--{key}={value}" for key, value in options.items() if value]
        over = [shlex.quote(f"--over={text}") for text in self.over]  # a bar is a pipe to a shell
        return " ".join(["kedro study", self.name, *over, *words])

    def study(self, conf: Path, env: str) -> Study:
        """The study that it means.

        Args:
            conf: the folder of the configuration.
            env: the Kedro environment whose files lie over the base's.

        Raises:
            InputError: as `load_study`, `scaled` and `sweep`.
        """
        if self.name == SWEEP:
            loaded = sweep(self.over, self.seeds)
        else:
            check_not_swept(self.name, self.over, self.seeds)
            loaded = load_study(conf, self.name, env)
        return loaded if self.scale is None else scaled(self.name, loaded, self.scale)
