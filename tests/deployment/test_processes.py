"""Processes over TLS on this machine: the simulator's bytes, also where one of them is killed."""

import re
import signal
import time

import pytest
import torch
from click.testing import CliRunner
from tests.deployment.trees import configured

from m2fdp.deployment.cloud import reference
from m2fdp.deployment.commands import main
from m2fdp.deployment.demo import prepare

MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}
REHEARSED = {"deployment.rehearsal": True, "training.rounds": 12}
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture
def rehearsed(tmp_path):
    """A function that prepares a rehearsal, whose processes end with the test."""
    begun = []

    def prepared(*changes):
        begun.append(prepare(configured(REHEARSED, *changes), tmp_path))
        return begun[-1]

    yield prepared
    for rehearsal in begun:
        rehearsal.end()


def rounds_of(rehearsal, name):
    return [
        int(found)
        for found in re.findall(r"^round (\d+) of", rehearsal.log(name).read_text(), re.M)
    ]


def wait_for_round(rehearsal, name, round_):
    deadline = time.monotonic() + 300
    while max(rounds_of(rehearsal, name), default=0) < round_:
        assert time.monotonic() < deadline, rehearsal.log(name).read_text()
        time.sleep(0.01)


def check_equal(rehearsal):
    assert rehearsal.wait(300) == 0, rehearsal.log(rehearsal.cloud).read_text()
    assert {process.returncode for process in rehearsal.processes.values()} == {0}
    weights, ledger = reference(rehearsal.experiment)
    assert torch.equal(rehearsal.weights(), weights)
    assert rehearsal.ledger().to_csv() == ledger.to_csv()


@pytest.mark.parametrize(
    "changes",
    [{}, {"privacy.mechanism": "gradient"}, MASKS],
    ids=["upload", "gradient", "masks"],
)
def test_any_process_may_be_killed_and_started_again(rehearsed, changes):
    rehearsal = rehearsed(changes)
    rehearsal.start_all()
    for round_, name in enumerate(("device-3", "server-1-1", "cloud", "device-0"), start=1):
        wait_for_round(rehearsal, "device-1", 2 * round_)
        rehearsal.processes[name].send_signal(signal.SIGKILL)
        rehearsal.processes[name].wait()
        rehearsal.start(name)
    check_equal(rehearsal)
    for device in rehearsal.experiment.network.tree.names[-1]:
        told = (rehearsal.folder / "state" / device / "budget.log").read_text().splitlines()
        assert len(told) == 12, "a line a round, and none twice"


def test_a_refusal_is_a_line_at_the_node_and_at_the_parent_that_waits(rehearsed):
    rehearsal = rehearsed()
    rehearsal.more = {"device-0": ["--budget", "2.0"]}
    rehearsal.start_all()
    assert rehearsal.wait(300) == 1
    words = "would bring its epsilon to"
    own = rehearsal.log("device-0").read_text()
    assert len(re.findall(f"refused: .*{words}", own)) == 1
    for parent in ("server-1-0", "cloud"):
        assert "device-0 refuses: round" in rehearsal.log(parent).read_text()
        assert words in rehearsal.log(parent).read_text()
    assert rehearsal.processes["device-0"].returncode == 2


def test_a_device_that_does_not_trust_as_the_plan_says_sends_nothing(rehearsed):
    rehearsal = rehearsed()
    rehearsal.trusted = False
    rehearsal.start_all()
    assert rehearsal.wait(300) == 1
    line = "server-1-1 would be sent un-noised vectors, and this device trusts nobody"
    for name in ("device-3", "server-1-1", "cloud"):
        assert line in rehearsal.log(name).read_text()
    assert not (rehearsal.folder / "state/device-3/places.log").exists()


@pytest.mark.parametrize("masks", [[], ["--masks"]], ids=["open", "masks"])
def test_the_demo_says_that_bytes_are_equal(masks):
    result = CliRunner().invoke(main, ["demo", *masks, "--params=training.rounds=2"])
    assert result.exit_code == 0, result.output
    assert "bytes equal" in result.output and "ledgers equal" in result.output
    assert "REHEARSAL" in result.output
