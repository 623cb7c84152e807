"""The table of observers: what it says of messages, and the page that is made from it."""

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
