"""The second day of a federation, by real processes: certificates that are renewed or revoked while
a run goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.deployment.relay import wait_for
from tests.deployment.test_commands import m2fdp
from tests.deployment.trees import configured

from m2fdp.deployment import keys
from m2fdp.deployment.demo import Rehearsal, prepare
from m2fdp.deployment.rehearsed import reference

LONG = {"training.rounds": 60, "deployment.rehearsal": True, "deployment.patience_s": 20}
MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Rehearsal]:
    run = prepare(configured(LONG), tmp_path)
    run.start_all()
    yield run
    run.end()


def says(run: Rehearsal, name: str, words: str) -> None:
    def said() -> str:
        return run.log(name).read_text()

    wait_for(lambda: words in said(), 60, lambda: f"{words!r} is not in:\n{said()}")


def sign(run: Rehearsal, name: str, key: str) -> None:
    """A new certificate of a name, into its folder: of the same key, or of a new one."""
    own, made = run.folder / "keys" / name, run.folder / "made" / name
    if key == "same":
        made.mkdir(parents=True)
        shutil.copy(own / f"{name}.csr", made)
    else:
        keys.request(name, made)
        shutil.copy(made / f"{name}.key", own)
    keys.sign(made / f"{name}.csr", run.folder / "authority")
    shutil.copy(made / f"{name}.pem", own)


def revoke(run: Rehearsal, name: str, *at: str) -> None:
    """The authority's list, by its command, into folders of keys."""
    made = run.folder / "revoked.json"
    m2fdp("keys", "revoke", name, "--authority", run.folder / "authority", "-o", made)
    for node in at:
        shutil.copy(made, run.folder / "keys" / node)


def equal(run: Rehearsal) -> None:
    """The run ends well, in the simulator's bytes."""
    assert run.wait(120) == 0, run.log(run.cloud).read_text()
    assert {process.returncode for process in run.processes.values()} == {0}
    assert torch.equal(run.weights(), reference(run.experiment)[0])


def test_certificates_are_renewed_in_the_run(running):
    says(running, "device-0", "round 3 of")
    for name, key in (("device-0", "new"), ("device-3", "same"), ("server-1-0", "new")):
        sign(running, name, key)
    sign(running, "cloud", "same")
    for name in ("device-0", "device-3", "server-1-0", "cloud"):
        says(running, name, "this node's certificate is a new one, valid until")
    says(running, "server-1-0", "device-0 shows a new certificate, valid until")
    says(running, "server-1-1", "device-3 shows a new certificate, valid until")
    says(running, "cloud", "server-1-0 shows a new certificate, valid until")
    equal(running)


def test_a_revoked_certificate_is_refused_in_a_line_at_both_ends(running):
    says(running, "device-0", "round 3 of")
    revoke(running, "device-0", "server-1-0", "device-0")
    says(running, "server-1-0", "device-0's certificate was revoked at")
    assert running.processes["device-0"].wait(30) == 2
    says(running, "device-0", "refuses this node: device-0's certificate was revoked at")
    running.start("device-0")
    assert running.processes["device-0"].wait(30) == 2, "nor does it begin"
    # An older list changes nothing; with a new certificate the run goes on.
    (running.folder / "keys/server-1-0/revoked.json").unlink()
    sign(running, "device-0", "new")
    running.start("device-0")
    equal(running)
