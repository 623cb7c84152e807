"""The table of observers: what it says of messages, and the page that is made from it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.core.privacy.parts import network_of

from m2fdp.core.config import ThreatConfig
from m2fdp.core.privacy.sight import Message, lines_of, message_of, observers, rows
from m2fdp.core.topology.network import SecureSums

PAGE = Path(__file__).parents[3] / "docs" / "who-reads-what.md"


def table() -> str:
    """The table for readers of the documentation, in Markdown."""
    head = "| kind | who | reads on the way up | is handed broadcasts | knows the noise of | told |"
    lines = [
        f"| `{name}` | {row.words} | {row.up} | {row.handed} | {row.drew} | "
        f"{'yes' if row.told else 'no'} |"
        for name, row in rows().items()
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *lines])


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(encoding="utf-8"), "put what table() says there"


@pytest.mark.parametrize(
    ("message", "readers"),
    [
        (Message(False, False, "alone"), {"servers", "uplinks", "colluders"}),
        (Message(False, False, "sum"), {"servers", "colluders"}),
        (Message(False, False, "words"), set()),
        (Message(False, True, "alone"), {"trusted_servers", "uplinks"}),
        (Message(False, True, "words"), set()),
        (Message(True, False, "alone"), {"cloud", "uplinks", "colluders"}),
        (Message(True, False, "sum"), {"cloud", "colluders"}),
        (Message(True, True, "sum"), {"trusted_servers"}),
    ],
)
def test_who_reads_a_message(message, readers):
    assert {name for name, row in rows().items() if row.reads(message)} == readers


@pytest.mark.parametrize(
    ("sums", "forms", "to_cloud"),
    [
        (SecureSums(), ["alone", "alone", "alone"], [True, False, False]),
        (SecureSums(frozenset({3})), ["alone", "alone", "sum"], [True, False, False]),
        (SecureSums(frozenset({1, 3})), ["sum", "alone", "sum"], [True, False, False]),
        (SecureSums(frozenset({3}), "cloud"), ["sum", "words", "sum"], [True, False, True]),
        (SecureSums(frozenset({2}), "cloud"), ["sum", "sum", "alone"], [True, True, False]),
    ],
)
def test_messages_on_a_path(sums, forms, to_cloud):
    """From layers 1, 2 and 3 on the path of the first device, below whose two trusted servers the
    cloud alone is not."""
    network = replace(network_of([2, 2, 2]), sums=sums)
    found = [message_of(network, layer, 0) for layer in (1, 2, 3)]
    assert [message.form for message in found] == forms
    assert [message.to_cloud for message in found] == to_cloud
    assert [message.trusted for message in found] == [not there for there in to_cloud]


def test_who_is_trusted_is_who_reads():
    network = replace(network_of([2, 2], ["server-1-0"]), trust=(np.array([True]), np.ones(2) < 0))
    assert message_of(network, 1, 0).trusted
    assert not message_of(network, 2, 0).trusted


def test_devices_elsewhere_have_the_lines_of_cousins_or_in_a_star_of_siblings():
    assert lines_of("far_devices", observers()) == ["far_devices"]
    assert lines_of("far_devices", {"cousins", "siblings"}) == ["cousins"]
    assert lines_of("far_devices", {"siblings", "cloud"}) == ["siblings"]
    assert lines_of("servers", {"siblings", "cloud"}) == []


# Somebody on a link, or who is counted beside another observer; `threat` has keys of its own for
# links and colluders.
NEVER_BY_NAME = {"coalition", "colluders", "trusted_servers"}
NEVER_BY_NAME |= {"downlinks", "downlinks_caught", "uplinks", "uplinks_caught"}


def test_every_kind_of_observer_can_be_distrusted():
    (names,) = get_args(ThreatConfig.model_fields["distrusted"].annotation)
    assert {*get_args(names)} | NEVER_BY_NAME == rows().keys(), (
        "put a new kind into ThreatConfig.distrusted, or here"
    )


OF_A_CONTRACTOR = {
    "room.py": """
from m2fdp.core.rooms import Room
ROOM = Room(observers={"contractor": "contractor.kind:CONTRACTOR"})
""",
    "kind.py": """
from m2fdp.core.privacy.sight import NOBODY, NOTHING, TO_SERVERS, Kind
CONTRACTOR = Kind("a contractor of untrusted servers", TO_SERVERS, NOTHING, NOBODY)
""",
    "watched.py": """
from dataclasses import replace
from m2fdp.extend import M2FDP, Algorithm

def plan(given):
    return replace(M2FDP.plan(given), distrusts=frozenset({"contractor"}))

WATCHED = Algorithm("watched", "Watched", "method", plan)
""",
}
ASKED = """
import m2fdp
from m2fdp.core.rooms import list_rooms
list_rooms("contractor")
config = m2fdp.load_config({"algorithm": "contractor.watched:WATCHED"})
m2fdp.Experiment.from_config(config).calibrate()
"""


def test_a_distrusted_observer_that_nobody_counts_is_refused(tmp_path):
    """Its row alone would be a promise that says nothing of it."""
    (tmp_path / "contractor").mkdir()
    for name, text in OF_A_CONTRACTOR.items():
        (tmp_path / "contractor" / name).write_text(text)
    asked = [sys.executable, "-c", ASKED]
    ended = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "threat.distrusted = 'contractor': is distrusted, and no line" in ended.stderr
