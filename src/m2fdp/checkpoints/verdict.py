"""What a run's promise is worth, as it is kept beside its model: the one place that says so.

A command that trains nothing may add conditions, and takes none away; the next training replaces
the verdict together with the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from m2fdp.core.config import Config, released
from m2fdp.core.files import replacing
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.streams import digest_of

VERDICT = "verdict.json"  # beside the model
LOST = (
    f"nothing made the run that trained the cell's model conditional: its {VERDICT} would tell, "
    "and is missing, damaged or another run's"
)
OTHER_RECORDS = f"the cell's model is trained on these records: its {VERDICT} tells of others"


@dataclass(frozen=True)
class Verdict:
    """What one run's epsilon rests on and can't be defended.

    Attributes:
        run: its `run_digest`.
        records: a digest of its training records.
        private: whether it promises anything.
        conditions: sentences that the run rests on; any makes its guarantee conditional.
        before: those of an earlier run with the same noise, as long as its model is there.
    """

    run: str
    records: str
    private: bool
    conditions: tuple[str, ...]
    before: tuple[str, ...] = ()

    @property
    def guarantee(self) -> str:
        """None, conditional or verified."""
        if not self.private:
            return "none"
        return "conditional" if self.conditions + self.before else "verified"

    @property
    def rests_on(self) -> tuple[str, ...]:
        """All that the model in the cell, whichever of the two runs' it is, rests on."""
        return tuple(dict.fromkeys(self.conditions + self.before))

    def joined(self, earlier: Verdict | None) -> Verdict:
        """The same, until its own model is there, beside the run's whose model is."""
        if earlier is None or earlier.run != self.run:
            return self
        return replace(self, before=earlier.rests_on)


def run_digest(config: Config) -> str:
    """What noise is keyed by, but the records: of two versions of this package the same."""
    text = json.dumps(released(config), sort_keys=True)
    return digest_of(f"{config.seed} {text}", ()).hex()[:32]


def keep(folder: Path, verdict: Verdict) -> None:
    """Write the verdict beside the model, in one step, unless it is there."""
    if kept(folder) == verdict:
        return
    with replacing(folder / VERDICT) as unfinished:
        content = {"guarantee": verdict.guarantee, **asdict(verdict)}
        unfinished.write_text(
            json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def kept(folder: Path) -> Verdict | None:
    """The verdict beside the model; None where there is none, or one that contradicts itself."""
    try:
        fields = json.loads((folder / VERDICT).read_text(encoding="utf-8"))
        guarantee = fields.pop("guarantee")
        lists = (tuple(map(str, fields.pop(name))) for name in ("conditions", "before"))
        verdict = Verdict(fields["run"], fields["records"], fields["private"], *lists)
        return verdict if verdict.guarantee == guarantee else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def settle(folder: Path) -> None:
    """The run's own model is there: what was found of an earlier one goes."""
    if (verdict := kept(folder)) is not None:
        keep(folder, replace(verdict, before=()))


def lowered(promised: Mapping[str, Any], conditions: Sequence[str]) -> dict[str, Any]:
    """What a run promises, as privacy_summary.json has it, resting on these conditions as well."""
    if promised.get("guarantee") not in EPSILON_NAMES or not conditions:
        return dict(promised)
    names = dict.fromkeys(EPSILON_NAMES.values(), EPSILON_NAMES["conditional"])
    assumptions = dict.fromkeys([*conditions, *promised.get("assumptions", ())])
    return {names.get(key, key): value for key, value in promised.items()} | {
        "guarantee": "conditional",
        "assumptions": list(assumptions),
    }
