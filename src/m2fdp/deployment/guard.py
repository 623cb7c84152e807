"""What stands between a question and a node's records: place in the run, trust, budget, memory.

A line is on the disk before what it is about leaves the node, so that after a crash a budget is
lost towards "spent" alone. Of a device's place in the run there is one draw: the seed of it, and a
line that the place is begun, are on the disk before anything is computed. A device that crashed
draws the same again, so that nobody learns more by crashes than by one answer. A node whose
computation has failed has a line of it, and refuses that place from then on: whoever sees whether
another draw fails has seen a second release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from m2fdp.core.engine.rules import TooLongError, refuse_too_long
from m2fdp.core.errors import one_line
from m2fdp.core.formatting import for_json
from m2fdp.deployment.keys import Identity
from m2fdp.deployment.links import Answer, Place, Question, Refusal
from m2fdp.deployment.node_plan import ChildrenError, Keeper, NodePlan, RefusedError
from m2fdp.deployment.plan import PublicPlan
from m2fdp.deployment.state import State
from m2fdp.deployment.statements import Below, placed, read, said, signed


def spent_before(state: State, plan: PublicPlan) -> tuple[float, float]:
    """Epsilon and delta of all other runs: the sum of what each has come to. A plan's own epsilon
    holds that of the rounds that it continues; a plan that went on beyond them is another run."""
    runs: dict[str, tuple[float, float, int]] = {}
    for entry in state.budget.entries:
        epsilon, delta, last = runs.get(entry["plan"], (0.0, 0.0, 0))
        spent = max(epsilon, float(entry["epsilon"])), max(delta, entry["delta"])
        runs[entry["plan"]] = (*spent, max(last, entry["round"]))
    runs.pop(plan.digest.hex(), None)
    while plan.continues is not None:
        plan, until = plan.continues
        if runs.get(plan.digest.hex(), (0.0, 0.0, 0))[2] <= until:
            runs.pop(plan.digest.hex(), None)
    return sum(spent[0] for spent in runs.values()), sum(spent[1] for spent in runs.values())


@dataclass(eq=False)
class Guard(Keeper):
    """The only way to what a node computes.

    Args:
        budget: epsilon that a device may spend in all, over all runs that its state has seen.
        below: the lines of a server's children.
        trusts: servers that a device may send un-noised messages to; None = whom the plan says.
    """

    node: NodePlan
    state: State
    identity: Identity
    budget: float | None = None
    below: Below | None = None
    trusts: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self._run = self.node.plan.digest.hex()
        # The latest line of each place in this run, in the order in which places were begun.
        own = (line for line in self.state.places.entries if line["plan"] == self._run)
        self._lines: dict[Place, Mapping[str, Any]] = {_place_of(line): line for line in own}

    def answer(self, question: Question, compute: Callable[[Question], bytes]) -> Answer | Refusal:
        """The answer of a question, computed once; what is refused, and why."""
        try:
            return self._answer(question, compute)
        except (RefusedError, ChildrenError) as error:
            return Refusal(self.node.name, str(error))

    @property
    def begun(self) -> int:
        """The last round of this run that is paid for, or of the plan that it continues."""
        paid = (each["round"] for each in self.state.budget.entries if each["plan"] == self._run)
        return max(paid, default=self.node.begins - 1)

    def spent(self, round_: int) -> float:
        """Epsilon of a device in all, after a round of this run."""
        before, _ = spent_before(self.state, self.node.plan)
        return before + (self.node.recomputed.epsilon(self.node.index, round_) if round_ else 0.0)

    def begin(self, round_: int) -> None:
        """Keep nothing of other rounds any longer."""
        self.seal()
        self.state.forget(self._book(round_))

    def seal(self) -> None:
        if self.below is not None:
            self.below.seal()

    def kept(self, round_: int, what: str) -> bytes | None:
        return self.state.kept(self._book(round_), what)

    def keep(self, round_: int, what: str, content: bytes, waits: bool = True) -> None:
        self.seal()  # what children have said, before what follows from it
        self.state.keep(self._book(round_), what, content, waits)

    def _answer(self, question: Question, compute: Callable[[Question], bytes]) -> Answer:
        place = question.place
        self._check(question)
        line, name = self._lines.get(place, {}), f"up-{place.first}-{place.kind}"
        if "refused" in line:
            raise RefusedError(line["refused"])
        if "said" in line:
            return self._again(name, line["question"], question)
        last = next(reversed(self._lines), place)
        if last.position > place.position:
            raise RefusedError(f"{place} is before what was asked last, {last}")
        kept = self.kept(place.round, name)
        if kept is not None:  # killed between the answer's file and its line
            answer = Answer.unpacked(kept)
            self._note(question, answer)
            return self._again(name, read(answer.statement.decode()).content["question"], question)
        self.begin(place.round)
        if self.budget is not None:
            self._spend(place.round, self.budget)
            if place.gives:
                self._start(question, line)
        content = self._computed(question, compute)
        answer = Answer(content, self._said(question, content).encode())
        self.keep(place.round, name, answer.packed())
        self._note(question, answer)
        return answer

    def _check(self, question: Question) -> None:
        node, place = self.node, question.place
        if question.plan != node.plan.digest:
            raise RefusedError("the question is of another plan")
        if self.trusts is not None:
            for server in node.recomputed.readers_in_clear(node.index):
                if server not in self.trusts:
                    known = ", ".join(sorted(self.trusts)) or "nobody"
                    sent = f"{server} would be sent un-noised vectors"
                    raise RefusedError(f"{sent}, and this device trusts {known}")
        has = node.begins <= place.round <= len(node.rounds)
        if not has or place not in node.places(place.round):
            raise RefusedError(f"the plan has no question of {place} for this node")
        n_parameters = node.recomputed.experiment.model.n_parameters
        if not place.begins:
            return
        if len(question.content) != 4 * n_parameters or not question.vector.isfinite().all():
            raise RefusedError(f"the question's vector is not {n_parameters} finite numbers")
        # Who asks knows how long it is.
        length, longest = float(question.vector.double().norm()), node.longest(place)
        try:
            refuse_too_long(length, longest, node.step_size(place.round), "as it is sent")
        except TooLongError as error:
            raise self._too_long(place, error) from None

    def _too_long(self, place: Place, error: TooLongError) -> RefusedError:
        return RefusedError(f"{place}: {self.node.recomputed.experiment.too_long(error)}")

    def _start(self, question: Question, begun: Mapping[str, Any]) -> None:
        """Write that a device begins a place; one begun before a crash may draw the same again."""
        if not begun:
            self.seed(question)
            self._write(placed(question), {})
            return
        if begun["question"] != question.digest.hex():
            second = "was begun for another question; what fails or not by the same draws"
            raise RefusedError(f"{question.place} {second} would be a second release")
        if self.kept(question.place.round, "seed") is None:
            second = "was begun, and what it draws is no longer kept; other draws"
            raise RefusedError(f"{question.place} {second} would be a second release")

    def _computed(self, question: Question, compute: Callable[[Question], bytes]) -> bytes:
        """What a question is answered with. That it fails may tell of records as an answer does:
        it is written down before anybody hears of it, and is this place's answer from then on.

        Raises:
            RefusedError: it fails. Of what is told, a length follows from noised models and a step
                of the protocol from messages; of any other error the text stays here.
            ChildrenError, OSError: a child has failed, or the disk; the same can be tried again.
        """
        place = question.place
        try:
            return compute(question)
        except (ChildrenError, OSError):
            raise
        except TooLongError as error:
            refusal, cause = self._too_long(place, error), str(error)
        except RefusedError as error:
            if not place.gives:  # draws nothing, and another question may go on
                raise
            refusal, cause = error, str(error)
        except Exception as error:
            refusal = RefusedError(f"{place} has failed; places.log of its state says why")
            cause = one_line(error)
        self._write(placed(question), {"refused": str(refusal), "cause": cause})
        raise refusal

    def _write(self, at: Mapping[str, Any], what: Mapping[str, str]) -> None:
        """A line on a place: that it is begun, or what else there is to say."""
        line = {**at, **what, "beside": self.state.budget.last}
        self.state.places.append(line)
        self._lines[_place_of(line)] = line

    def _again(self, name: str, answered: str, question: Question) -> Answer:
        """The same question gets the same bytes; noise drawn anew would be a second release."""
        if answered != question.digest.hex():
            second = "was answered for another question; a second answer"
            raise RefusedError(f"{question.place} {second} would be a second release")
        kept = self.kept(question.place.round, name)
        if kept is None:
            raise RefusedError(f"the answer of {question.place} is no longer kept")
        answer = Answer.unpacked(kept)
        line, identity = read(answer.statement.decode()), self.identity
        if not line.is_signed_by(identity.certificate):  # the key is a new one since
            answer = replace(answer, statement=signed(identity, line.text).encode())
        return answer

    def _said(self, question: Question, content: bytes) -> str:
        lines = (entry["said"] for entry in reversed(self.state.places.entries) if "said" in entry)
        added, former = self.node.adds(question.place), next(map(read, lines), None)
        return said(self.identity, question, content, added, former)

    def _note(self, question: Question, answer: Answer) -> None:
        """Write down that a question was answered, and how."""
        line = answer.statement.decode()
        about = read(line).content
        self._write({name: about[name] for name in placed(question)}, {"said": line})

    def _spend(self, round_: int, budget: float) -> None:
        """Write what the round costs, if the budget allows it and it is not written yet."""
        if self.begun >= round_:
            return
        epsilon = self.node.recomputed.epsilon(self.node.index, round_)
        before, delta_before = spent_before(self.state, self.node.plan)
        earlier = f", with {before:.4g} of earlier runs," if before else ""
        of, most = f"round {round_}", epsilon
        if self.node.begins > 1:  # an amendment is taken as a whole, or not at all
            of, last = "the amended plan", len(self.node.rounds)
            most = self.node.recomputed.epsilon(self.node.index, last)
        if before + most > budget * (1 + 1e-9):
            limit = f"{before + most:.4g}{earlier} and its budget is {budget:g}"
            raise RefusedError(f"{of} would bring its epsilon to {limit}")
        delta = self.node.recomputed.ledger.delta
        spent = {
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "plan": self._run,
            "round": round_,
            "epsilon": for_json(epsilon),
            "in_all": for_json(before + epsilon),
            "budget": for_json(budget),
            "delta": delta,
            "delta_in_all": delta_before + delta,
            "beside": self.state.places.last,
        }
        self.state.budget.append(spent)

    def _book(self, round_: int) -> str:
        return f"{self._run[:16]}-{round_:06d}"


def _place_of(entry: Mapping[str, Any]) -> Place:
    return Place(entry["round"], entry["first"], entry["last"], entry["kind"])
