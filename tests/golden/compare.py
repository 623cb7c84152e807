"""Compare the code as it is with what was written down; see `tests.golden`."""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden import ledgers, runs, sights

# SciPy finds the limits of an exact interval as roots, to some 1e-12.
_ROOTS = 1e-9


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.compare", description=__doc__)
    parser.add_argument("what", choices=("ledger", "sights", "runs", "audits"))
    parser.add_argument("--every", type=int, default=1, help="ledger, sights: only each so many-th")
    parser.add_argument("--only", nargs="+", help="runs and audits: only these")
    parser.add_argument("--threads", type=int, default=1, help="processes of each run")
    options = parser.parse_args()
    golden = load(options.what)
    if options.what == "ledger":
        found = ledgers.differences(golden, options.every)
    elif options.what == "sights":
        found = sights.differences(golden, load("ledger"), options.every)
    else:
        if options.what == "runs":
            golden = of_this_processor(golden)
        names = options.only or list(golden)
        compute = runs.digests if options.what == "runs" else runs.audits
        found = _between(golden, compute(names, options.threads))
    n_differences = 0
    for line in found:
        n_differences += 1
        print(line, flush=True)
    print(f"{n_differences} differences", file=sys.stderr)
    return int(n_differences > 0)


def load(what: str) -> Any:
    """What was written down: ledger, sights, runs or audits."""
    return json.loads((Path(__file__).parent / f"{what}.json").read_text(encoding="utf-8"))


def of_this_processor(golden: dict[str, Any]) -> dict[str, Any]:
    """The digests of runs on this kind of processor; a SystemExit where there are none."""
    kind = runs.processor()
    if kind not in golden:
        sys.exit(f"runs: written down on {', '.join(golden)}; this processor has {kind}")
    return golden[kind]


def _between(golden: dict[str, Any], found: Iterator[tuple[str, Any]]) -> Iterator[str]:
    for name, results in found:
        was = golden[name]
        if isinstance(was, dict):
            for file in sorted(was.keys() | results.keys()):
                before, after = was.get(file, "(none)"), results.get(file, "(none)")
                if before != after:
                    yield f"{name}: {file} is {after}; was {before}"
        elif not all(map(_same_bounds, was, results)) or len(was) != len(results):
            yield f"{name}: {results}; was {was}"


def _same_bounds(was: dict[str, Any], found: dict[str, Any]) -> bool:
    """Equal, up to how exactly the limits of a confidence interval are found."""
    return was.keys() == found.keys() and all(
        math.isclose(value, found[key], rel_tol=0.0, abs_tol=_ROOTS)
        if key in ("epsilon_lower", "largest_lower")
        else value == found[key]
        for key, value in was.items()
    )


if __name__ == "__main__":
    sys.exit(main())
