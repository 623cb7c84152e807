"""Sums that hide their terms, between real nodes: a parent and its children in five steps.

| step | the parent asks with | a child answers |
|---|---|---|
| `keys` | the model to start from | its public keys, signed, and its certificate |
| `shares` | all children's keys | shares of its two secrets, sealed for each other child |
| `masked` | what the others have sealed for it | its update and noise, as masked words |
| `survivors` | whose words have arrived, and whose not | its signature of that list |
| `unmasking` | all signatures | its shares for that list |

The protocol itself is `m2fdp.secure_aggregation`'s, in the variant for servers that lie (`active`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from m2fdp.deployment import keys
from m2fdp.deployment import masked_messages as messages
from m2fdp.deployment.links import STEPS, Answer, Kind, Links, Place, Question
from m2fdp.deployment.node_plan import ChildrenError, Keeper, NodePlan, RefusedError, keystream
from m2fdp.secure_aggregation.active import ActiveMember, Signing, quorum
from m2fdp.secure_aggregation.messages import (
    BelowThreshold,
    KeyRefused,
    Mailbox,
    ProtocolError,
    Roster,
    SealedShares,
)
from m2fdp.secure_aggregation.model_sums import group_terms, model_spread
from m2fdp.secure_aggregation.protocol import Member, Server
from m2fdp.secure_aggregation.terms import Group, Input, Terms


def sum_terms(node: NodePlan, layer: int, members: np.ndarray, place: Place) -> Terms:
    """What all parties of one sum know, each of its own: that of members int64 (n,) of a layer, in
    the tree's order."""
    plan, network = node.rounds[place.round - 1], node.recomputed.network
    experiment = node.recomputed.experiment
    n_parameters, rates = experiment.model.n_parameters, experiment.sampling_rates
    spread = model_spread(network, node.mechanism, plan, rates, layer, n_parameters)
    run = f"plan {node.plan.digest.hex()}, round {place.round}, steps {place.first} to {place.last}"
    return group_terms(network, layer, members, spread, n_parameters, run)


def survivors_counted_on(node: NodePlan, group: Group) -> int:
    """How many survivors a list must have: where nobody is done without, all; else a quorum."""
    recomputed = node.recomputed
    if recomputed.settings.on_missing != "skip":
        return group.n_members
    return quorum(group, recomputed.experiment.config.threat.colluding)


@dataclass(eq=False)
class MaskingChild:
    """A child's side: what it answers its parent at each step.

    It keeps a seed and the questions that it has answered in secret, and is rebuilt from them. So a
    child that is started again goes on as if it had not been killed.

    Args:
        message: what makes its model (1, M) of a question, and the noise of it.
    """

    node: NodePlan
    identity: keys.Identity
    message: Callable[[Question], tuple[Tensor, Tensor]]
    keeper: Keeper

    def __post_init__(self) -> None:
        self._number = int(np.searchsorted(self.node.siblings, self.node.index))
        self._certificates: dict[int, bytes] = {}
        # The member whose next step is there, with the place of that step.
        self._ready: tuple[Place, ActiveMember] | None = None

    def answer(self, question: Question) -> bytes:
        """What it answers, the question being the plan's; a `RefusedError` where a step of the
        protocol is refused, or was not come to."""
        place = question.place
        try:
            member = self._member(place)
            self._ready = None  # a member that fails is lost, and rebuilt
            content = self._take(member, place, question.content)
        except (ProtocolError, BelowThreshold) as error:
            raise RefusedError(f"{place}: {error}") from None
        if place.kind != STEPS[-1]:
            self.keeper.keep(place.round, _asked(place), question.content, waits=False)
            self._ready = replace(place, kind=STEPS[STEPS.index(place.kind) + 1]), member
        return content

    def _begun(self, place: Place) -> keys.Identity:
        """Its keys as the sum was begun by them: others have been shown that certificate."""
        own, what = self.identity, f"identity-{place.first}"
        kept = self.keeper.kept(place.round, what)
        if kept is None:
            kept = messages.pack(enumerate((own.key, own.certificate)))
            self.keeper.keep(place.round, what, kept, waits=False)
        key, certificate = messages.unpack(kept, "keys").values()
        return keys.Identity(own.name, key, certificate, own.authority)

    def _take(self, member: ActiveMember, place: Place, content: bytes) -> bytes:
        match place.kind:
            case "keys":
                public, signature = member.announce()
                return messages.pack_keys(public, signature, self._begun(place).certificate)
            case "shares":
                return messages.pack(member.share(*self._roster(content)).parcels)
            case "masked":
                return messages.pack_words(member.mask(self._mailbox(content), self._input(place)))
            case "survivors":
                return member.confirm(messages.unpack_request(content))
            case _:
                signatures = messages.unpack(content, "signatures")
                return messages.pack_unmasking(member.unmask(signatures))

    def _mailbox(self, content: bytes) -> Mailbox:
        return Mailbox(tuple(messages.unpack(content, "mailbox").items()), self._number)

    def _member(self, place: Place) -> ActiveMember:
        """The member that is at a step; rebuilt, unless it is there."""
        if self._ready is not None and self._ready[0] == place:
            return self._ready[1]
        terms = sum_terms(self.node, self.node.layer, self.node.siblings, place)
        member = Member(terms, self._number, self._entropy(place))
        signing = Signing(self._begun(place).sign, self._verify)
        active = ActiveMember(member, signing, survivors_counted_on(self.node, terms.group))
        for kind in STEPS[: STEPS.index(place.kind)]:
            before = replace(place, kind=kind)
            content = self.keeper.kept(place.round, _asked(before))
            if content is None:
                raise RefusedError(f"{place}: nobody has asked for {kind} before")
            if kind == "masked":
                active.receive(self._mailbox(content))
            else:
                self._take(active, before, content)
        return active

    def _entropy(self, place: Place) -> Callable[[int], bytes]:
        """All that it draws for one sum: ChaCha20's keystream of a seed, which is kept."""
        return keystream(self.keeper.entropy(place.round, f"seed-{place.first}", waits=False))

    def _roster(self, content: bytes) -> tuple[Roster, Mapping[int, bytes]]:
        """Keys and signatures of the plan's children; others' certificates are refused."""
        tree, public, signatures = self.node.recomputed.network.tree, [], {}
        for number, part in messages.unpack(content, "roster").items():
            shown, signatures[number], certificate = messages.unpack_keys(number, part)
            if number >= len(self.node.siblings):
                raise KeyRefused(number, "no child of this node's parent in the plan")
            name = tree.names[self.node.layer][self.node.siblings[number]]
            if self.identity.fault(certificate, name) is not None:
                raise KeyRefused(number, f"not with a certificate of {name} by the authority")
            self._certificates[number] = certificate
            public.append(shown)
        return Roster(tuple(public)), signatures

    def _verify(self, number: int, signature: bytes, text: bytes) -> bool:
        certificate = self._certificates.get(number)
        return certificate is not None and keys.verify(certificate, signature, text)

    def _input(self, place: Place) -> Input:
        """Its update, weighed by what it counts with, and its noise: the simulator's."""
        node, start = self.node, self.keeper.kept(place.round, _asked(replace(place, kind="keys")))
        assert start is not None  # else there is no member
        asked = Question(node.plan.digest, replace(place, kind="model"), start)
        vector, noise = self.message(asked)
        share = node.recomputed.network.shares(node.layer, node.layer - 1)[node.index]
        weight = torch.as_tensor(share).to(vector)
        put_in = (vector - asked.vector) * weight
        draws = node.mechanism.noise.messages[node.layer][node.index] * share > 0
        return Input(put_in[0].numpy(), (noise * weight)[0].numpy() if draws else None)


@dataclass(frozen=True, eq=False)
class Asking:
    """A parent that asks its children for a sum, where each would be asked a question for its
    model. It keeps what it decides before any child hears it."""

    node: NodePlan
    links: Links
    question: Question
    keeper: Keeper
    on_missing: Callable[[str], None]

    def ask(self, kind: Kind, contents: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Ask children, by number; the answers of those who are there, as they come."""
        place = replace(self.question.place, kind=kind)
        asked = {one: Question(self.question.plan, place, one) for one in set(contents.values())}
        everybody = range(len(self.node.children))
        replies = self.links.ask([asked[contents[u]] if u in contents else None for u in everybody])
        for number, reply in zip(sorted(contents), replies, strict=True):
            if isinstance(reply, Answer):
                yield number, reply.content
            else:
                self.on_missing(self.node.without(reply))

    def gathered(self, kind: Kind, contents: Mapping[int, bytes]) -> bytes:
        """The answers to a step, packed: what the next step is asked with."""
        following = STEPS[STEPS.index(kind) + 1]
        return self.decided(following, lambda: messages.pack(self.ask(kind, contents)))

    def decided(self, kind: Kind, make: Callable[[], bytes]) -> bytes:
        """What a step is asked with: what was kept, or what is made now."""
        round_, name = self.question.place.round, f"decided-{kind}-{self.question.place.first}"
        content = self.keeper.kept(round_, name)
        if content is None:
            content = make()
            if self.node.recomputed.settings.on_missing == "skip":  # else all are there, always
                self.keeper.keep(round_, name, content)
        return content


def masked_sum(asking: Asking) -> Tensor:
    """What the children put in, added up: (M,). It raises `BelowThreshold` where too few are left,
    `ProtocolError` where a child breaks the protocol, `ChildrenError` where one refuses."""
    node, place = asking.node, asking.question.place
    terms = sum_terms(node, node.layer + 1, node.members, place)
    group, server = terms.group, Server(terms)
    least = survivors_counted_on(node, group)

    start = asking.question.content
    roster = asking.gathered("keys", dict.fromkeys(range(group.n_members), start))
    announced = messages.unpack(roster, "roster")
    listed = server.roster(messages.unpack_keys(*one)[0] for one in announced.items())
    for member, reason in server.refused.items():
        raise KeyRefused(member, reason)

    takes_part = dict.fromkeys((one.sender for one in listed.keys), roster)
    sealed = asking.gathered("shares", takes_part)
    parcels = {
        number: tuple(messages.unpack(content, "sealed shares").items())
        for number, content in messages.unpack(sealed, "sealed shares").items()
    }
    boxes = server.mailboxes(SealedShares(one, number) for number, one in parcels.items())

    before = asking.keeper.kept(place.round, f"decided-survivors-{place.first}")
    expected = None if before is None else messages.unpack_request(before).survivors
    asked = {
        box.recipient: messages.pack(box.parcels)
        for box in boxes
        if expected is None or box.recipient in expected
    }
    request = server.request(messages.unpack_words(*one) for one in asking.ask("masked", asked))
    if len(request.survivors) < least:
        raise BelowThreshold(group.name, len(request.survivors), least)
    list_ = asking.decided("survivors", lambda: messages.pack_request(request))
    if list_ != messages.pack_request(request):
        raise ChildrenError(f"the sum of {node.name}: one who has survived is not there any more")

    survived = dict.fromkeys(request.survivors, list_)
    signatures = asking.gathered("survivors", survived)
    signed = messages.unpack(signatures, "signatures")
    if len(signed) < least:
        raise BelowThreshold(group.name, len(signed), least)
    answers = asking.ask("unmasking", dict.fromkeys(signed, signatures))
    values = server.read(messages.unpack_unmasking(u, one, request) for u, one in answers)
    return torch.as_tensor(values, dtype=torch.float32)


def _asked(place: Place) -> str:
    return f"asked-{place.kind}-{place.first}"
