"""What an operator sees of nodes: their status, numbers and lines."""

import json
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests.deployment.relay import free_address
from tests.deployment.test_commands import m2fdp
from tests.deployment.trees import authority, identity, tree_of

from m2fdp.core.errors import InputError
from m2fdp.deployment import keys, metrics
from m2fdp.deployment.status import FILE, Line, Status, as_json, kept, overdue, statuses
from m2fdp.program import main

DEADLINE = 60.0


@pytest.fixture
def made(tmp_path: Path):
    """An edge server's status, with what it has told."""
    identity(tmp_path, "server-1-0")
    own, told = tmp_path / "keys/server-1-0", []
    files = [own / "server-1-0.pem", own / "authority.pem"]
    node, folder = tree_of().servers["server-1-0"].node, tmp_path / "state/server-1-0"
    folder.mkdir(parents=True)
    status = Status(folder, node, files, DEADLINE, told.append)
    certificate = identity(tmp_path, "device-0").certificate
    return SimpleNamespace(status=status, told=told, folder=folder, certificate=certificate)


def lived(made) -> None:
    """Two rounds, a child and a refusal."""
    tell = made.status.tell
    tell(Line("", "parent", there=True))
    tell(Line("device-0 is there", "child", child="device-0", there=True,
              certificate=made.certificate))  # fmt: skip
    for round_ in (1, 2):
        tell(Line("", "works", round=round_))
        tell(Line(f"round {round_} of 3: 0.5 s", "round", round=round_, seconds=0.5))
    tell(Line("", "strangers", count=4))
    reason = "round 3 would bring its epsilon to 4.2 and its budget is 4"
    tell(Line("", "refused", child="device-0", reason=reason))


def test_a_status_is_read_while_the_node_runs_and_after(made):
    with kept(made.status):
        lived(made)
        made.status.look()
        (seen,) = statuses(made.folder)
    assert (seen["node"], seen["round"], seen["rounds_done"], seen["seconds"]) == (
        "server-1-0", 2, 2, 1.0,
    )  # fmt: skip
    assert seen["runs"] and seen["overdue"] is None and seen["parent"]["there"]
    here, away = seen["children"]["device-0"], seen["children"]["device-1"]
    assert here["there"] and 364 < here["certificate_days"] <= 365 and not away["there"]
    assert "its budget is 4" in here["refusal"]["text"] == seen["last_refusal"]["text"]
    assert made.told == ["device-0 is there", "round 1 of 3: 0.5 s", "round 2 of 3: 0.5 s"]
    made.status.tell(Line("the run is over: 3 rounds", "end"))
    made.status.look()
    (over,) = statuses(made.folder.parent)
    assert over["ended"] == "the run is over: 3 rounds" and not over["runs"]
    again = Status(made.folder, tree_of().servers["server-1-0"].node, [], DEADLINE, print)
    assert again.content["round"] == 2 and again.content["rounds_done"] == 0


def test_nothing_of_it_is_secret(made, tmp_path):
    with kept(made.status):
        lived(made)
    written = (made.folder / FILE).read_bytes()
    for secret in tmp_path.glob("keys/*/*.key"):
        assert secret.read_bytes().splitlines()[1] not in written


def ago(seconds: float) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"doing": "works", "since": 70, "round": 3}, "round 3 has stood still for 7"),
        ({"doing": "works", "since": 50}, None),
        ({"doing": "waits", "since": 7000}, None),
        ({"parent": {"name": "cloud", "there": False, "since": 70}}, "cloud has not been there"),
        ({"parent": {"name": "cloud", "there": True, "since": 7000}}, None),
        ({"doing": "works", "since": 7000, "ended": "over"}, None),
    ],
)
def test_what_is_older_than_its_deadline_is_overdue(made, change, words):
    for of in (change, change.get("parent", {})):
        of |= {"since": ago(of["since"])} if "since" in of else {}
    found = overdue(made.status.content | change)
    assert found is None if words is None else words in found


def test_numbers_are_those_of_the_status(made):
    lived(made)
    made.status.tell(Line("", "budget", epsilon=2.5, budget=4.0))
    made.status.look()
    found = {name: value for name, _, value in metrics.numbers(made.status.content)}
    assert 364 < found.pop("m2fdp_certificate_days") <= 365
    assert found == {
        "m2fdp_rounds_total": 2,
        "m2fdp_round_seconds_total": 1.0,
        "m2fdp_round": 2,
        "m2fdp_refusals_total": {"round N would bring its epsilon to N and its budget is N": 1},
        "m2fdp_children_present": 1,
        "m2fdp_handshakes_failed": 4,
        "m2fdp_epsilon": 2.5,
        "m2fdp_budget": 4.0,
        "m2fdp_healthy": 1.0,
    }
    for number in range(100):
        made.status.tell(Line("", "refused", reason="!" * number + "x" * 500))
    refusals = made.status.content["refusals"]
    assert len(refusals) == 21 and refusals["others"] == 81 and max(map(len, refusals)) == 80


def get(address: str, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_over_http_have_numbers_and_whether_the_node_is_well(made):
    lived(made)
    address = free_address()
    content = made.status.content
    with metrics.served(content, address):
        code, page = get(address, "metrics")
        assert code == 200 and get(address, "health") == (200, "well\n")
        made.status.content |= {"doing": "works", "since": ago(100)}
        assert get(address, "health")[0] == 503 and get(address, "else")[1].startswith("valid")
        with (
            pytest.raises(InputError, match="can't be listened at"),
            metrics.served(content, address),
        ):
            pass
    assert "m2fdp_rounds_total 2.0" in page and "m2fdp_children_present 1.0" in page
    assert 'm2fdp_refusals_total{reason="round N would bring' in page


def test_without_it_the_option_names_the_extra(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for at, words in (("9100", r"pip install 'm2fdp\[metrics\]'"), ("here", "valid: PORT, or")):
        with pytest.raises(InputError, match=words), metrics.served(made.status.content, at):
            pass


def test_a_certificate_that_ends_soon_is_told_of_once_a_day(made, monkeypatch, tmp_path):
    own = tmp_path / "keys/server-1-0"
    (own / "server-1-0.pem").unlink()
    keys.sign(own / "server-1-0.csr", authority(tmp_path), days=29)
    made.status.look()
    made.status.look()
    (line,) = made.told
    assert line.startswith("a certificate of this node ends in 29 days, ")
    assert line.level == "warning" and line.event == "certificate"
    keys.sign(own / "server-1-0.csr", authority(tmp_path), days=365)
    ticks = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: ticks + 90_000)
    made.status.look()
    assert len(made.told) == 1 and made.status.content["certificate_ends"] > ago(-300 * 86_400)


def test_lines_are_json_objects(made):
    lines = []
    made.status._tell = as_json("server-1-0", lines.append)
    made.status.tell("plan\n of 3 \x1b[31mrounds")
    lived(made)
    found = [json.loads(line) for line in lines]
    assert not any("\n" in line or "\x1b" in line for line in lines)
    assert all(list(each) == ["time", "level", "node", "round", "event", "text"] for each in found)
    assert [(each["round"], each["event"]) for each in found] == [
        (None, "note"),
        (None, "child"),
        (1, "round"),
        (2, "round"),
    ]


def test_the_command_shows_a_table_or_json_and_its_code_says_whether_all_is_well(made):
    with kept(made.status):
        lived(made)
        made.status.look()
        table = m2fdp("status", made.folder)
    assert "server-1-0" in table and "2 of 3" in table and "device-1" in table
    (seen,) = json.loads(m2fdp("status", "--json", made.folder.parent))
    assert seen["rounds_done"] == 2
    made.status.content |= {"doing": "works", "since": ago(100)}
    made.status.tell(Line("", "else"))
    made.status.look()
    stuck = CliRunner().invoke(main, ["status", str(made.folder)], env={"COLUMNS": "200"})
    assert stuck.exit_code == 1 and "round 2 has stood still for" in stuck.output
    assert "has no status.json" in m2fdp("status", made.folder / "kept", code=2)
