"""Write the results of the code as it is, all that `tests.golden.compare` compares, anew."""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from tests.finished import REPOSITORY
from tests.golden import ledgers, runs, sights
from tests.golden.compare import load

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("what", choices=("ledger", "sights", "runs", "audits"))
    parser.add_argument("folder", nargs="?", type=Path, default=HERE, help="where to write")
    parser.add_argument("--threads", type=int, default=1, help="processes of each run")
    options = parser.parse_args()
    path = options.folder / f"{options.what}.json"
    if options.what == "ledger":
        ledgers.write(ledgers.make(load("ledger"), base_parameters()), path)
    elif options.what == "sights":
        _write(sights.make(load("ledger")), path)
    elif options.what == "runs":
        found = dict(runs.digests(list(runs.RUNS), options.threads))
        _write(load("runs") | {runs.processor(): found}, path)
    else:
        _write(dict(runs.audits(list(runs.AUDITS), options.threads)), path)


def base_parameters() -> dict[str, Any]:
    """The parameters of conf/base."""
    result: dict[str, Any] = {}
    for file in sorted((REPOSITORY / "conf" / "base").glob("parameters*.yml")):
        result |= yaml.safe_load(file.read_text(encoding="utf-8"))
    return result


def _write(golden: Any, path: Path) -> None:
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
