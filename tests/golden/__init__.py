"""Results that a change of the code's shape must not change, written down once.

From the repository's root, with the project's own Python:

    python -m tests.golden.compare ledger             # every line of every configuration
    python -m tests.golden.compare ledger --every 3  # a third of them, in seconds
    python -m tests.golden.compare sights             # marks of who reads what, and zones
    python -m tests.golden.compare runs               # SHA-256 of what `kedro run` writes
    python -m tests.golden.compare runs --only star resumed
    python -m tests.golden.compare audits             # the bounds that audits find

Each prints one line a difference, and exits with 1 if there is any. `python -m tests.golden.make`
with the same words writes the files anew; that is for a change of results that is meant.

Ledgers are equal on every machine, to 1e-9. The weights of a run follow from the processor's own
products: runs.json has SHA-256 for each kind of processor, and they hold for the locked versions.

`adapter` is the only module here that knows the library from inside.
"""
