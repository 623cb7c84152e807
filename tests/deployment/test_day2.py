"""The second day of a federation, by real processes: certificates that are renewed or revoked while
a run goes on."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
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


def ends(run: Rehearsal) -> None:
    """The run ends well, at every node."""
    try:
        assert run.wait(90) == 0, run.log(run.cloud).read_text()
        assert {process.returncode for process in run.processes.values()} == {0}
    except subprocess.TimeoutExpired:
        logs = (f"{name}:\n{run.log(name).read_text()[-600:]}" for name in run.processes)
        pytest.fail("\n".join(logs))


def equal(run: Rehearsal) -> None:
    """The run ends well, in the simulator's bytes."""
    ends(run)
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


def amend(run: Rehearsal, *options: str, code: int = 0) -> str:
    out, authority = run.folder / "amendment.json", run.folder / "authority"
    where = ("--authority", authority, "-o", out)
    return m2fdp("amend", run.folder / "plan.json", *options, *where, code=code)


def join(run: Rehearsal, name: str, budget: float) -> None:
    """A device begins with the amendment."""
    where = ["--keys", f"{run.folder}/keys/{name}", "--data", f"{run.folder}/{name}.npz"]
    words = [sys.executable, "-m", "m2fdp.deployment", "join", f"{run.folder}/amendment.json"]
    words += ["--as", name, *where, "--budget", f"{budget}", "--rehearsal"]
    with run.log(name).open("ab") as log:
        run.processes[name] = subprocess.Popen(words, stdout=log, stderr=log)


def test_a_device_comes_and_one_goes_in_the_run(running):
    """After a round, under a plan whose ledger has both parts; nobody is started anew."""
    told = amend(running, "--after=20", "--add=device-4:server-1-0=150", "--retire=device-1")
    epsilons = dict(re.findall(r"^  (device-\d): (?:retired, )?epsilon (\S+)$", told, re.M))
    assert epsilons.keys() == {f"device-{n}" for n in range(5)} and "retired" in told
    own = running.folder / "keys/device-4"
    keys.sign(keys.request("device-4", own), running.folder / "authority")
    data = np.load(running.folder / "device-0.npz")
    rows = np.resize(np.arange(len(data["y"])), 150)
    np.savez(running.folder / "device-4.npz", x=data["x"][rows], y=data["y"][rows])
    join(running, "device-4", 5.0)
    ends(running)
    log = {name: running.log(name).read_text() for name in running.processes}
    for name in ("cloud", "server-1-0", "device-0", "device-3"):
        rounds = [int(found) for found in re.findall(r"^round (\d+) of 60", log[name], re.M)]
        assert rounds == list(range(1, 61)), (name, log[name])
    assert "round 21 of 60" in log["device-4"] and "round 20 of 60" not in log["device-4"]
    assert "round 21" not in log["device-1"] and "amended after round 20 by" in log["device-1"]
    for name in ("device-0", "device-2", "device-3", "device-4"):
        assert f"epsilon {epsilons[name]} of" in log[name].splitlines()[-2], log[name]
    (summary,) = running.folder.glob("data/08_reporting/*/privacy_summary.json")
    promised = json.loads(summary.read_text())
    assert "rounds 1 to 20 were another plan's" in "\n".join(promised["assumptions"])
