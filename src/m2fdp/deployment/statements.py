"""What nodes say that they have done: a signed line an answer, chained by digests.

Noise can't be proven to others. A line says how much a node has added to what it sent, over its
name; whoever breaks the promise has signed it. Each line numbers itself and names the digest of its
node's line before, and a server's names the digest of all lines that it has of its children.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from m2fdp.deployment import keys
from m2fdp.deployment.links import Question


@dataclass(frozen=True)
class Said:
    """One line.

    Attributes:
        number: how many lines of the node came before.
        line: it, as it is signed and with its signature.
        content: what it says.
    """

    number: int
    line: str
    content: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the line."""
        return sha256(self.line.encode()).hexdigest()


def said(
    identity: keys.Identity,
    question: Question,
    answer: bytes,
    added: float,
    chain: tuple[int, str, str],
) -> str:
    """The line of an answer.

    Args:
        added: the deviation of the noise that it holds of this node's own, in the mechanism's unit;
            of several local steps, of each.
        chain: how many lines came before, the digest of the last, and of all lines from below.
    """
    number, previous, below = chain
    place = question.place
    content = {
        "node": identity.name,
        "number": number,
        "plan": question.plan.hex(),
        "round": place.round,
        "first": place.first,
        "last": place.last,
        "kind": place.kind,
        "added": added,
        "question": question.digest.hex(),
        "answer": sha256(answer).hexdigest(),
        "previous": previous,
        "below": below,
    }
    text = json.dumps(content)
    return f"{text}  {base64.b64encode(identity.sign(text.encode())).decode()}"


def read(line: str) -> Said:
    """A line, whoever has signed it.

    Raises:
        ValueError: it is none.
    """
    try:
        content = json.loads(line.rpartition("  ")[0])
        return Said(int(content["number"]), line, content)
    except (KeyError, TypeError):
        raise ValueError("no statement") from None


def fault(
    said: Said, certificate: bytes, question: Question, answer: bytes, added: float
) -> str | None:
    """What is wrong with a child's line on an answer; None = nothing.

    Args:
        added: the noise that the plan has it add.
    """
    text, _, signature = said.line.rpartition("  ")
    try:
        signed = keys.verify(certificate, base64.b64decode(signature), text.encode())
    except ValueError:
        signed = False
    if not signed:
        return "is not signed by its certificate"
    expected = {
        "node": keys.name_of(certificate),
        "plan": question.plan.hex(),
        "round": question.place.round,
        "kind": question.place.kind,
        "question": question.digest.hex(),
        "answer": sha256(answer).hexdigest(),
    }
    for name, value in expected.items():
        if said.content.get(name) != value:
            return f"says {name} {said.content.get(name)}, not {value}"
    if not said.content.get("added", 0.0) >= added:
        return f"says that it added {said.content.get('added')}, and the plan has {added:.6g}"
    return None


def broken_chain(lines: Iterable[Said]) -> Said | None:
    """The first of a node's lines, in order, that does not follow the one before."""
    before = None
    for each in lines:
        if before is not None and each.number == before.number + 1:
            if each.content["previous"] != before.digest:
                return each
        elif before is not None and each.number <= before.number:
            return each
        before = each
    return None
