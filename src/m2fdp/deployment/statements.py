"""Signed lines: what nodes state of their answers, and what a server has heard of its children.

Noise can't be proven to others. So a node signs how much it has added to what it sent, and the
digest of its line before: whoever breaks the promise has signed it.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from m2fdp.deployment import keys
from m2fdp.deployment.keys import Identity
from m2fdp.deployment.links import Answer, Question
from m2fdp.deployment.masked import sum_terms
from m2fdp.deployment.masked_messages import NoMessage, check_answer, unpack_keys
from m2fdp.deployment.node_plan import NodePlan
from m2fdp.deployment.state import Log, State
from m2fdp.secure_aggregation.active import text_of_keys


@dataclass(frozen=True)
class Said:
    """One line, with its signature: how many of the node came before, and what it says."""

    number: int
    line: str
    content: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return sha256(self.line.encode()).hexdigest()

    @property
    def text(self) -> str:
        """All but the signature."""
        return self.line.rpartition("  ")[0]

    def is_signed_by(self, certificate: bytes) -> bool:
        try:
            signature = base64.b64decode(self.line.rpartition("  ")[2])
            return keys.verify(certificate, signature, self.text.encode())
        except ValueError:
            return False


def placed(question: Question) -> dict[str, Any]:
    """What a line says of the question that it is about."""
    plan, digest = question.plan.hex(), question.digest.hex()
    return {"plan": plan, **asdict(question.place), "question": digest}


def said(
    identity: Identity, question: Question, answer: bytes, added: float, former: Said | None
) -> str:
    """The line of an answer, after the node's former one. `added` is the deviation of the noise
    that it holds of this node's own, in the mechanism's unit; of several local steps, of each."""
    number, previous = (former.number + 1, former.digest) if former else (0, "")
    content = {"node": identity.name, "number": number, **placed(question), "added": added}
    content |= {"answer": sha256(answer).hexdigest(), "previous": previous}
    return signed(identity, json.dumps(content))


def signed(identity: Identity, text: str) -> str:
    """A text with its signature."""
    return f"{text}  {base64.b64encode(identity.sign(text.encode())).decode()}"


def read(line: str) -> Said:
    """A line, whoever has signed it; a `ValueError` where it is none."""
    try:
        content = json.loads(line.rpartition("  ")[0])
        number = content["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("what is no statement") from None
    if not isinstance(number, int):
        raise ValueError("what is no statement")
    return Said(number, line, content)


def fault(
    said: Said, certificate: bytes, question: Question, answer: bytes, added: float
) -> str | None:
    """What is wrong with a child's line on an answer, to which the plan has it add noise; None =
    nothing."""
    if not said.is_signed_by(certificate):
        return "is not signed by its certificate"
    expected = {"node": keys.name_of(certificate), **placed(question)}
    for name, value in (expected | {"answer": sha256(answer).hexdigest()}).items():
        if said.content.get(name) != value:
            return f"says {name} {said.content.get(name)}, not {value}"
    own = said.content.get("added")
    if not isinstance(own, int | float) or not own >= added:
        return f"says that it added {own}, and the plan has {added:.6g}"
    return None


class Below:
    """What the children of a server have said, in `statements.log` of its state."""

    def __init__(self, node: NodePlan, state: State, identity: Identity | None = None) -> None:
        self._node, self._identity = node, identity
        self._log, self._waiting = Log(state.folder / "statements.log"), list[Said]()
        lines = [read(entry["said"]) for entry in self._log.entries]
        self._latest = {line.content["node"]: line for line in lines}
        self._known = {line.text for line in lines}

    def check(
        self, child: str, certificate: bytes, question: Question, answer: Answer
    ) -> str | None:
        """What is wrong with a child's answer and its line; None = nothing, and it is taken up. A
        server that died after it had taken up lines, and before it answered, hears all again."""
        n_parameters = self._node.recomputed.experiment.model.n_parameters
        try:
            check_answer(question.place.kind, answer.content, n_parameters)
            line = read(answer.statement.decode(errors="replace"))
        except (NoMessage, ValueError) as error:
            return f"it has sent {error}"
        if question.place.kind == "keys" and not self._signs(child, certificate, question, answer):
            return "it has sent keys that are not signed by its certificate for this sum"
        added = self._node.adds(question.place, child)
        if (wrong := fault(line, certificate, question, answer.content, added)) is not None:
            return f"its statement {wrong}"
        if line.text in self._known:
            return None
        former = self._latest.get(child)
        if former is not None and line.number <= former.number:
            numbers = f"number {line.number}, and number {former.number} is known"
            twice = "two processes of its name, or one with an older state"
            return f"its statement is its {numbers}: {twice}"
        self._latest[child] = line
        self._known.add(line.text)
        self._waiting.append(line)
        return None

    def _signs(self, child: str, certificate: bytes, question: Question, answer: Answer) -> bool:
        """Whether the other children will take its keys."""
        node, number = self._node, self._node.children.index(child)
        public, signature, shown_one = unpack_keys(number, answer.content)
        text = text_of_keys(sum_terms(node, node.layer + 1, node.members, question.place), public)
        taken = keys.same(shown_one, certificate) or (  # a sum goes on by the key it was begun by
            self._identity is not None and self._identity.fault(shown_one, child) is None
        )
        return taken and keys.verify(shown_one, signature, text)

    def seal(self) -> None:
        """Write what has come."""
        if self._waiting:
            self._log.append(*({"said": said.line} for said in self._waiting))
            self._waiting.clear()
