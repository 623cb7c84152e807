"""A server that lies: it reads what it must not of members who believe it, and nothing of those who
sign their keys and one list of survivors; each check left out lets it read again.

All entropy has fixed seeds, so each of these tests fails always or never.
"""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from tests.secure_aggregation.rounds import (
    cancel_pairs,
    exact_sum,
    inputs_of,
    private_key,
    seeded,
    terms_of,
)

from m2fdp.secure_aggregation import active, keys
from m2fdp.secure_aggregation.active import ActiveMember, Signing, quorum
from m2fdp.secure_aggregation.messages import (
    KeyRefused,
    Mailbox,
    OutOfTurn,
    Roster,
    UnmaskRefused,
    UnmaskRequest,
)
from m2fdp.secure_aggregation.protocol import Member, Server, point
from m2fdp.secure_aggregation.terms import Group, encode

EVERYBODY = UnmaskRequest((0, 1, 2, 3, 4), ())


def signing_of(n):
    """Of n members with Ed25519 keys."""
    private = [Ed25519PrivateKey.generate() for _ in range(n)]

    def verify(member, signature, text):
        try:
            private[member].public_key().verify(signature, text)
        except InvalidSignature:
            return False
        return True

    return [Signing(one.sign, verify) for one in private]


class Round:
    """All members to their masked vectors, behind a server that a test plays; `colluders` are on
    its side."""

    by_all = False  # whether what a member has signed counts for every list

    def __init__(self, terms, colluders=(), signed=True):
        n = terms.group.n_members
        self.terms, self.signing, self.inputs = terms, signing_of(n), inputs_of(terms)
        self.passive = [Member(terms, u, seeded(u)) for u in range(n)]
        least = quorum(terms.group, len(colluders))
        self.members = [
            ActiveMember(one, signing, least)
            for one, signing in zip(self.passive, self.signing, strict=True)
        ]
        self.signed, self.colluders, self.server = signed, colluders, Server(terms)
        announced = [member.announce() for member in self.members]
        self.roster = self.server.roster([public for public, _ in announced])
        self.signatures = {public.sender: signature for public, signature in announced}
        sealed = [one.share(self.roster, self.signatures) for one in self.members]
        self.mailboxes = self.server.mailboxes(sealed)
        self.vectors = [self.members[u].mask(self.mailboxes[u], self.inputs[u]) for u in range(n)]

    def shares_of(self, requests):
        """What each member gives that is told its own list, by member: a server's that lies.

        Every list is signed by whoever was told it, and by all colluders, who sign all of them.
        """
        if not self.signed:
            return {u: self.passive[u].unmask(request) for u, request in requests.items()}
        signatures = {u: self.members[u].confirm(request) for u, request in requests.items()}
        return {
            u: self.members[u].unmask(
                {v: one for v, one in signatures.items() if self.by_all or requests[v] == request}
                | self.by_colluders(request)
            )
            for u, request in requests.items()
        }

    def by_colluders(self, request):
        text = active.text_of_survivors(self.terms, request)
        return {u: self.signing[u].sign(text) for u in self.colluders}

    def secret(self, about, which, given_):
        """Of what members gave, by member, and what colluders hold: a seed (0) or a key (1)."""
        shares = {point(u): one[about] for u, one in given_.items() if about in one}
        shares |= {point(u): self.passive[u]._held[about][which] for u in self.colluders}
        return secret_of(shares, self.terms.group.threshold)


def secret_of(shares, threshold):
    """Of shares by point, of which there are enough."""
    assert len(shares) >= threshold, "the attack has too few shares"
    return keys.rebuild_all({x: {"": share} for x, share in shares.items()}, threshold)[""]


def reads_one_vector(signed=True):
    """n = 5, t = 3 and c = 1 = 2t - n: of member 0 to 1 that it survived, to 2 and 3 that not."""
    played = Round(terms_of(5, 3), colluders=(4,), signed=signed)
    without = UnmaskRequest((1, 2, 3, 4), (0,))
    given_ = played.shares_of({0: EVERYBODY, 1: EVERYBODY, 2: without, 3: without})
    seed = played.secret(0, 0, {u: given_[u].own_masks for u in (0, 1)})
    key = played.secret(0, 1, {u: given_[u].masking_keys for u in (2, 3)})
    words = played.vectors[0].words.copy()
    keys.take_own_mask(words, keys.own_key(seed, played.terms))
    cancel_pairs(words, key, 0, played.roster, played.terms)
    return np.array_equal(words, encode(played.inputs[0], played.terms))


def reads_a_sum_of_too_few(signed=True):
    """n = 8, t = 6 and c = 2 < 2t - n: each is told of two others of three that they fell silent.

    The server ends with the keys of 0, 1 and 2, and the seeds of the rest: a sum of five.
    """
    played = Round(terms_of(8, 6), colluders=(6, 7), signed=signed)
    terms, kept = played.terms, (3, 4, 5, 6, 7)
    silent = {0: (1, 2), 1: (0, 2), 2: (0, 1), 3: (0, 1), 4: (0, 2), 5: (1, 2)}
    told = {
        u: UnmaskRequest(tuple(v for v in range(8) if v not in gone), gone)
        for u, gone in silent.items()
    }
    given_ = played.shares_of(told)
    words = np.sum([played.vectors[u].words for u in kept], axis=0, dtype=np.uint32)
    for u in kept:
        seed = played.secret(u, 0, {v: one.own_masks for v, one in given_.items()})
        keys.take_own_mask(words, keys.own_key(seed, terms))
    for v in (0, 1, 2):
        secret = played.secret(v, 1, {u: one.masking_keys for u, one in given_.items()})
        for u in kept:
            public = played.roster.keys[u].masking
            key = keys.pair_key(private_key(secret), public, u, terms)
            keys.add_pair_mask(words, key, v, u)
    few = np.sum([encode(played.inputs[u], terms) for u in kept], axis=0, dtype=np.uint32)
    return np.array_equal(words, few)


def reads_by_made_up_keys(signed=True):
    """n = 3, t = 2: the server plays both others of member 0, which shares its seed with them."""
    terms = terms_of(3, 2)
    entry = inputs_of(terms)[0]
    victim, own = Member(terms, 0, seeded(0)), [Member(terms, u, seeded(u)) for u in (1, 2)]
    member = ActiveMember(victim, signing_of(3)[0], 2)
    public, signature = member.announce()
    roster = Roster((public, *(one.announce() for one in own)))
    sealed = dict(
        (member.share(roster, {0: signature}) if signed else victim.share(roster)).parcels
    )
    parcels = {one.number: dict(one.share(roster).parcels) for one in own}
    words = victim.mask(Mailbox(tuple((u, parcels[u][0]) for u in (1, 2)), 0), entry).words
    for one in own:
        other = 3 - one.number
        box = Mailbox(((0, sealed[one.number]), (other, parcels[other][one.number])), one.number)
        one.receive(box)
        key = keys.pair_key(one._masking, public.masking, 0, terms)
        keys.add_pair_mask(words, key, one.number, 0)
    seed = secret_of({point(one.number): one._held[0][0] for one in own}, 2)
    keys.take_own_mask(words, keys.own_key(seed, terms))
    return np.array_equal(words, encode(entry, terms))


ATTACKS = {
    reads_one_vector: (UnmaskRefused, "3 have signed its list of survivors, not 4"),
    reads_a_sum_of_too_few: (UnmaskRefused, "have signed its list of survivors, not 6"),
    reads_by_made_up_keys: (KeyRefused, "the keys of member 1: not signed by it"),
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_server_that_lies_reads_of_members_who_believe_it_and_not_of_those_who_sign(attack):
    assert attack(signed=False)
    failure, words = ATTACKS[attack]
    with pytest.raises(failure, match=words):
        attack()


BROKEN = {
    "lists that nobody has to sign": (
        (reads_one_vector, reads_a_sum_of_too_few),
        "signers",
        lambda terms, request, *_: frozenset(request.survivors),
    ),
    "signatures of any list": (
        (reads_one_vector, reads_a_sum_of_too_few),
        "text_of_survivors",
        lambda terms, request: b"any",
    ),
    "keys that nobody has to sign": ((reads_by_made_up_keys,), "check_keys", lambda *_: None),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_without_a_check_is_read_again(broken, monkeypatch):
    attacks, name, without = BROKEN[broken]
    monkeypatch.setattr(active, name, without)
    if name == "text_of_survivors":  # whoever signs anything has signed everything
        monkeypatch.setattr(Round, "by_all", True)
    for attack in attacks:
        assert attack()


def test_a_quorum_of_t_is_too_small_for_as_many_colluders(monkeypatch):
    """c >= 2t - n: the signatures of t would not do."""
    monkeypatch.setattr("tests.secure_aggregation.test_active.quorum", lambda group, _: 3)
    assert reads_one_vector()


@given(st.integers(2, 60), st.data())
def test_no_two_lists_are_signed_by_a_quorum(n, data):
    t = data.draw(st.integers(n // 2 + 1, n))
    c = data.draw(st.integers(0, n - 1))
    q = quorum(Group("zone 0", n, t), c)
    assert t <= q <= n and (n - c) + 2 * c < 2 * q
    assert q == t or (n - c) + 2 * c >= 2 * (q - 1), "no more than it takes"


def test_members_who_sign_end_in_the_same_sum():
    played = Round(terms_of(5, 3))
    request = played.server.request(played.vectors[:4])
    signatures = {u: played.members[u].confirm(request) for u in request.survivors}
    answers = [played.members[u].unmask(signatures) for u in request.survivors]
    expected = exact_sum(played.inputs[:4], played.terms)
    np.testing.assert_array_equal(played.server.read(answers), expected)


def test_a_list_of_survivors_that_is_none_is_not_signed():
    member = Round(terms_of(5, 3), colluders=(3, 4)).members[0]
    for request, words in (
        (UnmaskRequest((0, 1, 2), (3, 4)), "3 survivors, and 4 are counted on"),
        (UnmaskRequest((0, 1, 2, 3, 4), (4,)), "both shares of one member"),
    ):
        with pytest.raises(UnmaskRefused, match=words):
            member.confirm(request)
    with pytest.raises(UnmaskRefused, match="has signed no list"):
        member.unmask({})


def test_a_second_list_is_not_signed_and_a_second_answer_not_given():
    played = Round(terms_of(5, 3))
    signatures = {u: played.members[u].confirm(EVERYBODY) for u in range(5)}
    with pytest.raises(UnmaskRefused, match="has signed another list"):
        played.members[0].confirm(UnmaskRequest((0, 1, 2, 3), (4,)))
    played.members[0].unmask(signatures)
    with pytest.raises(UnmaskRefused, match="does so once"):
        played.members[0].unmask(signatures)


def test_keys_of_another_round_member_or_grid_are_not_taken():
    terms = terms_of(3)
    announced, signing = [Member(terms, u, seeded(u)).announce() for u in range(3)], signing_of(3)
    roster = Roster(tuple(announced))

    def signed(of):
        texts = (active.text_of_keys(of, public) for public in announced)
        return {u: one.sign(text) for u, (one, text) in enumerate(zip(signing, texts, strict=True))}

    right = signed(terms)
    active.check_keys(terms, roster, right, signing[0])
    for wrong in (
        signed(replace(terms, label="run 1, round 2")),
        signed(replace(terms, scale=replace(terms.scale, bound=2.0))),
        {0: right[0], 1: right[2], 2: right[1]},
    ):
        with pytest.raises(KeyRefused, match="not signed by it for this round and grid"):
            active.check_keys(terms, roster, wrong, signing[0])


def test_a_member_that_is_rebuilt_unmasks_as_before_and_masks_nothing_more():
    played = Round(terms_of(5, 3))
    for masks_again in (True, False):
        again = Member(played.terms, 2, seeded(2))
        assert again.announce() == played.roster.keys[2]
        again.share(played.roster)
        again.receive(played.mailboxes[2])
        if masks_again:
            with pytest.raises(OutOfTurn):
                again.mask(played.mailboxes[2], played.inputs[2])
    assert again.unmask(EVERYBODY) == played.passive[2].unmask(EVERYBODY)


def test_a_list_is_signed_whatever_its_order():
    terms = terms_of(5, 3)
    texts = [
        active.text_of_survivors(terms, UnmaskRequest(survivors, silent))
        for survivors, silent in (((0, 2, 3), (1, 4)), ((3, 2, 0), (4, 1)), ((0, 2), (1, 3, 4)))
    ]
    assert texts[0] == texts[1] != texts[2]
