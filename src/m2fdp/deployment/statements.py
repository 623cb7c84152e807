"""What nodes say that they have done: a signed line an answer, chained by digests.

Noise can't be proven to others. A line says how much a node has added to what it sent, over its
name; whoever breaks the promise has signed it. Each line numbers itself and names the digest of its
node's line before.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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


def placed(question: Question) -> dict[str, Any]:
    """What a line says of the question that it is about."""
    return {
        "plan": question.plan.hex(),
        **asdict(question.place),
        "question": question.digest.hex(),
    }


def said(
    identity: keys.Identity,
    question: Question,
    answer: bytes,
    added: float,
    former: Said | None,
) -> str:
    """The line of an answer.

    Args:
        added: the deviation of the noise that it holds of this node's own, in the mechanism's unit;
            of several local steps, of each.
        former: the node's line before; None = there is none.
    """
    number, previous = (former.number + 1, former.digest) if former else (0, "")
    content = {"node": identity.name, "number": number, **placed(question), "added": added}
    content |= {"answer": sha256(answer).hexdigest(), "previous": previous}
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
    expected = {"node": keys.name_of(certificate), **placed(question)}
    for name, value in (expected | {"answer": sha256(answer).hexdigest()}).items():
        if said.content.get(name) != value:
            return f"says {name} {said.content.get(name)}, not {value}"
    if not said.content.get("added", 0.0) >= added:
        return f"says that it added {said.content.get('added')}, and the plan has {added:.6g}"
    return None
