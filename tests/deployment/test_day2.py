"""The second day of a federation, by real processes: certificates that are renewed or revoked while
a run goes on."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.deployment.relay import wait_for
from tests.deployment.test_commands import m2fdp
from tests.deployment.test_process import Running
from tests.deployment.trees import configured

from m2fdp import load_config
from m2fdp.core.privacy.accounting import epsilon
from m2fdp.deployment import keys
from m2fdp.deployment.amendments import amended
from m2fdp.deployment.composed import continued
from m2fdp.deployment.demo import Rehearsal, prepare
from m2fdp.deployment.guard import spent_before
from m2fdp.deployment.plan import PublicPlan, make_plan, recompute
from m2fdp.deployment.rehearsed import reference
from m2fdp.deployment.state import State

LONG = {"training.rounds": 60, "deployment.rehearsal": True, "deployment.patience_s": 20}
MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Rehearsal]:
    run = prepare(configured(LONG, {"training.rounds": 6}), tmp_path)
    yield run
    run.end()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Rehearsal]:
    run = prepare(configured(LONG), tmp_path)
    run.start_all()
    yield run
    run.end()


def says(run: Rehearsal, name: str, words: str) -> None:
    def said() -> str:
        return run.log(name).read_text()

    wait_for(lambda: words in said(), 200, lambda: f"{words!r} is not in:\n{said()}")


@contextmanager
def paused(run: Rehearsal, name: str = "device-1") -> Iterator[None]:
    """The run is in its middle, and waits for a device."""
    says(run, "device-0", "round 3 of")
    run.processes[name].send_signal(signal.SIGSTOP)
    yield
    run.processes[name].send_signal(signal.SIGCONT)


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
        assert run.wait(240) == 0, run.log(run.cloud).read_text()
        assert {process.returncode for process in run.processes.values()} == {0}
    except subprocess.TimeoutExpired:
        logs = (f"{name}:\n{run.log(name).read_text()[-600:]}" for name in run.processes)
        pytest.fail("\n".join(logs))


def equal(run: Rehearsal) -> None:
    """The run ends well, in the simulator's bytes."""
    ends(run)
    assert torch.equal(run.weights(), reference(run.experiment)[0])


@pytest.mark.full
def test_certificates_are_renewed_in_the_run(running):
    with paused(running):
        for name, key in (("device-0", "new"), ("device-3", "same"), ("server-1-0", "new")):
            sign(running, name, key)
        sign(running, "cloud", "same")
    for name in ("device-0", "device-3", "server-1-0", "cloud"):
        says(running, name, "this node's certificate is a new one, valid until")
    says(running, "server-1-0", "device-0 shows a new certificate, valid until")
    says(running, "server-1-1", "device-3 shows a new certificate, valid until")
    says(running, "cloud", "server-1-0 shows a new certificate, valid until")
    equal(running)


@pytest.mark.full
def test_a_revoked_certificate_is_refused_in_a_line_at_both_ends(running):
    with paused(running):
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


def amend(run: Rehearsal, *options: str, out="amendment", of="plan", code=0) -> str:
    """The command, whose amendment then lies beside the plan of all nodes; what it prints."""
    authority, file = run.folder / "authority", run.folder / f"{out}.json"
    where = ("--authority", authority, "-o", file)
    return m2fdp("amend", run.folder / f"{of}.json", *options, *where, code=code)


def join(run: Rehearsal, name: str, *options: str, own: str = "", at: str = "amendment") -> None:
    """A device of its own files begins with a plan."""
    own = own or name
    where = ["--keys", f"{run.folder}/keys/{own}", "--data", f"{run.folder}/{name}.npz"]
    words = [sys.executable, "-m", "m2fdp.deployment", "join", f"{run.folder}/{at}.json"]
    words += ["--as", name, *where, "--budget", "5", "--rehearsal", *options]
    with run.log(own).open("ab") as log:
        run.processes[own] = subprocess.Popen(words, stdout=log, stderr=log)


def new_device(run: Rehearsal, name: str, n_records: int) -> None:
    own = run.folder / "keys" / name
    keys.sign(keys.request(name, own), run.folder / "authority")
    data = np.load(run.folder / "device-0.npz")
    rows = np.resize(np.arange(len(data["y"])), n_records)
    np.savez(run.folder / f"{name}.npz", x=data["x"][rows], y=data["y"][rows])


def rounds_of(told: list[str]) -> list[int]:
    return [int(n) for n in re.findall(r"^round (\d+) of", "\n".join(told), re.M)]


def test_a_device_comes_and_one_goes_in_the_run(short):
    """After a round, under a plan whose ledger has both parts; nobody is started anew."""
    told = amend(short, "--after=3", "--add=device-4:server-1-0=150", "--retire=device-1")
    epsilons = dict(re.findall(r"^  (device-\d): (?:retired, )?epsilon (\S+)$", told, re.M))
    assert epsilons.keys() == {f"device-{n}" for n in range(5)} and "device-1: retired" in told
    new_device(short, "device-4", 150)
    run = Running(short, plans={"device-4": "amendment.json"})
    assert run.ended["cloud"] == ("the run is over: 6 rounds", True)
    for name in ("cloud", "server-1-0", "device-0", "device-3"):
        assert rounds_of(run.told[name]) == [1, 2, 3, 4, 5, 6], run.told[name]
    assert rounds_of(run.told["device-4"]) == [4, 5, 6]
    assert rounds_of(run.told["device-1"]) == [1, 2, 3]
    assert "over: amended after round 3 by plan" in run.ended["device-1"]
    for name in ("device-0", "device-2", "device-3", "device-4"):
        assert f"epsilon {epsilons[name]} of" in run.told[name][-1]
        *_, begun = (line for line in run.told[name] if "is spent; the run's end" in line)
        assert begun.startswith(f"epsilon {0 if name == 'device-4' else 2.694} of 5 is spent")
        assert begun.endswith(f" would be at {epsilons[name]}")
    (summary,) = short.folder.glob("data/08_reporting/*/privacy_summary.json")
    rests = "\n".join(json.loads(summary.read_text())["assumptions"])
    assert "rounds 1 to 3 were another plan's" in rests
    again = Running(short, only=["device-1"])
    assert "amended after round 3" in again.ended["device-1"] and not rounds_of(
        again.told["device-1"]
    )


def test_an_amendment_beyond_a_device_s_budget_gets_no_answer(short):
    """It refuses as a whole, in a line; the next amendment takes the longer run back."""
    amend(short, "--after=3", "--params=training.rounds=9")
    budgets = dict.fromkeys(("device-0", "device-1", "device-2", "device-3"), 4.004)
    run = Running(short, budgets)
    reason, as_planned = run.ended["cloud"]
    assert "refuses: the amended plan would bring its epsilon to" in reason and not as_planned
    for name in budgets:
        log = (short.folder / "state" / name / "budget.log").read_text()
        assert log.count("\n") == 3 and rounds_of(run.told[name]) == [1, 2, 3]
    amend(short, "--after=3", "--params=training.rounds=5", of="amendment", out="amendment-2")
    run = Running(short, budgets)
    assert run.ended["cloud"] == ("the run is over: 5 rounds", True), run.told
    assert rounds_of(run.told["device-0"]) == [4, 5]


def test_a_forged_amendment_changes_nothing(short):
    amend(short, "--after=3", "--retire=device-1")
    file = short.folder / "amendment.json"
    file.write_text(file.read_text().replace('"round": 3', '"round": 2', 1))
    run = Running(short)
    assert run.ended["cloud"] == ("the run is over: 6 rounds", True)
    assert sum("is not signed by this node's authority" in line for line in run.told["cloud"]) == 1
    assert torch.equal(short.weights(), reference(short.experiment)[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--after=0"], "--after = 0: valid: a round of the plan, 1 to 5"),
        (["--after=6"], "--after = 6: valid: a round of the plan, 1 to 5"),
        (["--after=3", "--retire=device-9"], "--retire = 'device-9': is no device; they are"),
        (["--after=3", "--retire=device-0", "--retire=device-1"], "'server-1-0': would have no"),
        (["--after=3", "--add=x:cloud=3"], "valid: NAME:SERVER=RECORDS, with a server of server"),
        (["--after=3", "--add=x:server-1-0=many"], "valid: NAME:SERVER=RECORDS"),
        (["--after=3", "--add=device-0:server-1-0=9"], "device-0 has been a node before"),
        (["--after=3", "--params=training.rounds=3"], "training.rounds = 3: leaves none after 3"),
        (["--after=3", "--params=privacy.delta=1e-3"], "'privacy.delta': can't be amended; valid"),
    ],
)
def test_what_no_amendment_can_do_ends_in_one_line(short, options, words):
    assert words in amend(short, *options, code=2)


def test_a_plan_that_went_on_beyond_its_end_is_another_run(short, tmp_path):
    """What the amendment's epsilon does not hold counts beside it."""
    amend(short, "--after=3")
    plans = [PublicPlan(json.loads((short.folder / f"{n}.json").read_text())["plan"])
             for n in ("plan", "amendment")]  # fmt: skip
    state = State(tmp_path / "own", "device-0")
    for round_ in (1, 2, 3, 4):
        before = spent_before(state, plans[1])
        assert before == (0.0, 0.0)
        line = {"plan": plans[0].digest.hex(), "round": round_, "epsilon": float(round_)}
        state.budget.append(line | {"delta": 1e-5, "beside": state.places.last})
    assert spent_before(state, plans[1]) == (4.0, 1e-5) and spent_before(state, plans[0])[0] == 0
    state.close()


def test_one_ledger_counts_the_rounds_of_both_plans(short):
    """Each over its noise, at one delta: by hand, of a device below the server that nobody
    trusts. What has not changed costs what it did."""
    plan = short.plan
    before, same = recompute(plan), recompute(amended(plan, 2, [], [], {}))
    for device in range(4):
        for rounds in (1, 2, 3, 6):
            assert same.epsilon(device, rounds) == pytest.approx(before.epsilon(device, rounds))
    longer = recompute(
        amended(plan, 2, ["x:server-1-0=150"], ["device-3"], {"training": {"rounds": 9}})
    )
    device = longer.network.tree.names[-1].index("device-0")

    def shown(recomputed, rounds):
        """To its server, the law of a round over the noise."""
        ledger = recomputed.ledger
        (line,) = (
            line for line in ledger.lines if line.kind == "servers" and 0 in line.position.members
        )
        return ledger.composition(line, rounds)

    fresh = make_plan(load_config(*[longer.experiment.config.model_dump()]), longer.facts)
    old, new = shown(before, 2), shown(recompute(fresh), 7)
    assert old[0][0] != new[0][0] and (old[0][1] * 7, len(old)) == (new[0][1] * 2, len(new))
    by_hand = epsilon((*old, *new), before.ledger.delta, before.ledger.adjacency)
    assert longer.epsilon(device, 9) == pytest.approx(by_hand, rel=1e-6)


def test_who_is_of_a_kind_that_a_plan_lacks_may_have_been_any_observer_there(short):
    """A line for each noise of the other plan, and none for what is in clear."""
    before = recompute(short.plan)
    ledger, names = before.ledger, before.network.tree.names[-1]
    of_device = [line for line in ledger.lines if 2 in line.position.members]
    (was,) = (line for line in of_device if line.kind == "siblings")
    lacking = replace(ledger, lines=tuple(line for line in ledger.lines if line != was))
    noised = [line for line in of_device if line.deviation > 0 and line != was]
    assert len(noised) > 1 and len(noised) < len(of_device) - 1
    both = continued(lacking, names, ledger, names, 2)
    siblings = [line for line in both.lines
                if line.kind == "siblings" and 2 in line.position.members]  # fmt: skip
    by_hand = [
        epsilon(
            (*ledger.composition(was, 2), *ledger.composition(line, 4)),
            ledger.delta,
            ledger.adjacency,
        )
        for line in noised
    ]
    assert [both.epsilon(line, 6) for line in siblings] == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("changes", [{}, MASKS], ids=["plain", "masked"])
def test_whoever_is_killed_as_a_plan_is_amended_comes_back_under_the_new_one(tmp_path, changes):
    run = prepare(configured(LONG, changes), tmp_path)
    try:
        amend(run, "--after=9", *([] if changes else ["--retire=device-1"]))
        run.start_all()
        says(run, "device-0", "round 5 of")
        # It is not there at the end of the plan, of which nobody will tell it.
        for name in ("device-0", "server-1-1"):
            run.processes[name].kill()
            run.processes[name].wait()
        run.start("server-1-1")
        run.start("device-0")
        says(run, "cloud", "from round 10 on")
        for name in ("cloud", "device-2", "server-1-0", "device-0"):
            run.processes[name].kill()
            run.processes[name].wait()
            run.start(name)
        ends(run)
        assert rounds_of(run.log("cloud").read_text().splitlines())[-1] == 60
    finally:
        run.end()


@pytest.mark.full
def test_a_device_with_a_new_key_goes_on_in_the_middle_of_a_masked_sum(tmp_path):
    """Killed at any time, and started with another key: kept answers are signed anew."""
    run = prepare(configured(LONG, MASKS), tmp_path)
    try:
        run.start_all()
        for turn, name in enumerate(("device-0", "device-3", "server-1-1", "device-0")):
            says(run, name, f"round {5 + 10 * turn} of")
            run.processes[name].kill()
            run.processes[name].wait()
            shutil.rmtree(run.folder / "made", ignore_errors=True)
            sign(run, name, "new")
            run.start(name)
        equal(run)
    finally:
        run.end()


@pytest.mark.full
def test_a_second_key_of_a_name_is_refused_while_the_first_is_there(running):
    other = running.folder / "keys/other"
    keys.sign(keys.request("device-0", other), running.folder / "authority")
    join(running, "device-0", "--state", f"{running.folder}/other", own="other", at="plan")
    line = "device-0 is here with another key; a node has one at a time"
    with paused(running):
        for name in ("server-1-0", "other"):
            says(running, name, line)
    other = running.processes.pop("other")
    other.kill()
    other.wait()
    equal(running)


def test_the_newest_list_of_the_authority_stands(tmp_path):
    """Whatever lies in the folder of keys afterwards: an older one, another's, or none."""
    for name in ("ours", "others"):
        keys.make_authority(tmp_path / name)
    own, told = tmp_path / "edge", list[str]()
    keys.sign(keys.request("edge", own), tmp_path / "ours")
    identity, shown = keys.read_identity("edge", own), (own / "edge.pem").read_bytes()
    identity.kept, list_ = tmp_path / "state/revoked.json", own / "revoked.json"
    assert keys.revoke("a", tmp_path / "ours", list_) == 1
    older = list_.read_bytes()
    assert keys.revoke("edge", tmp_path / "ours", list_) == 2
    identity.heed(told.append)
    assert told == ["revoked.json: number 2, on a, edge"]
    for content, words in (
        (older, "revoked = 1: is older than what is known; number 2 stands"),
        (b"{}", "is no file of `m2fdp` that holds a revoked; number 2 stands"),
        (list_.read_bytes().replace(b'"number": 2', b'"number": 9'), "is not signed by"),
        (None, "is not signed by"),
    ):
        if content is None:
            keys.revoke("b", tmp_path / "others", list_)
        else:
            list_.write_bytes(content)
        identity.heed(told.append)
        identity.heed(told.append)
        assert words in told[-1] and "\n" not in told[-1]
    assert len(told) == 4, "each is told of once"
    list_.unlink()
    again = keys.read_identity("edge", own)
    again.kept = identity.kept
    again.heed(told.append)
    assert "was revoked at" in again.fault(shown, "edge") and again.number == 2
    keys.sign(own / "edge.csr", tmp_path / "ours")
    assert again.fault((own / "edge.pem").read_bytes(), "edge") is None


def test_a_certificate_that_can_not_be_taken_leaves_the_former_one(tmp_path):
    """It is told of once; half of a new pair is waited for."""
    keys.make_authority(tmp_path / "authority")
    own, new, told = tmp_path / "edge", tmp_path / "new", list[str]()
    for folder in (own, new):
        keys.sign(keys.request("edge", folder), tmp_path / "authority")
    identity = keys.read_identity("edge", own)
    before = identity.certificate
    assert not identity.renewed() and not identity.renew(told.append)
    for content in (b"none", (new / "edge.pem").read_bytes()):
        (own / "edge.pem").write_bytes(content)
        assert identity.renewed() and not identity.renew(told.append)
        assert not identity.renewed() and identity.certificate == before
    assert len(told) == 2 and "is of another key than edge.key beside it; the former" in told[1]
    shutil.copy(new / "edge.key", own)
    assert identity.renewed() and identity.renew(told.append)
    assert identity.certificate == (new / "edge.pem").read_bytes() and len(told) == 3
