"""What a bundle takes, refuses, keeps and drops."""

from __future__ import annotations

import random
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from certs.authority import Authority
from certs.bundle import NOBODY, Bundle
from certs.errors import CertificateError, Fault
from certs.leaf import fingerprint
from tests.certs.makers import NOW, Recipe, make_authority, make_leaf, pem_of

POOL = [
    make_authority(seed, now=NOW + timedelta(days=seed % 3), life=timedelta(days=10 + seed % 4))
    for seed in range(8)
]
Picks = list[Authority]
PICKS = st.lists(st.sampled_from(POOL), max_size=12)


@given(picks=PICKS, shuffled=st.randoms())
def test_same_authorities_give_same_bytes_in_any_order(
    picks: Picks, shuffled: random.Random
) -> None:
    certificates = [one.certificate for one in picks]
    bundle = Bundle.of(certificates)
    shuffled.shuffle(certificates)

    assert Bundle.of(certificates + certificates) == bundle
    assert len(bundle) == len({fingerprint(one) for one in certificates})


@given(PICKS)
def test_a_bundle_comes_back_from_its_own_pem(picks: Picks) -> None:
    bundle = Bundle.of(one.certificate for one in picks)

    assert Bundle.salvage(bundle.to_pem()) == bundle
    if len(bundle):
        assert Bundle.parse(bundle.to_pem()) == bundle


@given(PICKS, PICKS, PICKS)
def test_merging_forgets_nobody_and_its_order_does_not_matter(
    first: Picks, second: Picks, third: Picks
) -> None:
    one, two, three = (Bundle.of(p.certificate for p in picks) for picks in (first, second, third))

    assert one.merge(two, three) == three.merge(one).merge(two)
    assert one.merge(two).fingerprints == one.fingerprints | two.fingerprints
    assert one.merge(NOBODY) == one.merge(one) == one


@given(PICKS, st.integers(0, 20))
def test_pruning_drops_exactly_what_has_expired(picks: Picks, days: int) -> None:
    bundle = Bundle.of(one.certificate for one in picks)
    now = NOW + timedelta(days=days)

    left = bundle.prune(now)

    assert all(one.not_valid_after_utc >= now for one in left)
    gone = bundle.fingerprints - left.fingerprints
    assert left == bundle.without(gone)
    assert all(one.not_valid_after_utc < now for one in bundle if fingerprint(one) in gone)


@given(st.binary(max_size=200))
def test_salvaging_never_fails(garbage: bytes) -> None:
    authority = POOL[0]

    assert len(Bundle.salvage(garbage)) == 0
    assert len(Bundle.salvage(b"\n" + authority.pem)) == 1


def test_a_private_key_in_a_bundle_is_refused() -> None:
    authority, leaf = make_leaf()

    with pytest.raises(CertificateError, match="holds a private key where a certificate belongs"):
        Bundle.parse(authority.pem + leaf.key_pem)


def test_a_leaf_in_a_bundle_is_refused() -> None:
    authority, leaf = make_leaf()

    with pytest.raises(CertificateError, match="which is no certificate authority") as caught:
        Bundle.parse(authority.pem + leaf.certificate_pem)

    assert caught.value.fault is Fault.NOT_AN_AUTHORITY
    assert Bundle.salvage(authority.pem + leaf.certificate_pem).to_pem() == authority.pem


def test_explanations_between_certificates_are_dropped() -> None:
    one, two = POOL[0].pem, POOL[1].pem

    bundle = Bundle.parse(b"# the old one\n" + one + b"subject=CN = two\n" + two)

    assert len(bundle) == 2
    assert b"#" not in bundle.to_pem()


@pytest.mark.parametrize("pem", [b"", b" \n", b"garbage", POOL[0].pem[:-30]])
def test_a_bundle_of_nothing_is_refused(pem: bytes) -> None:
    with pytest.raises(CertificateError) as caught:
        Bundle.parse(pem)

    assert caught.value.fault is Fault.UNREADABLE


def test_an_authority_of_others_is_taken_as_well() -> None:
    foreign = Recipe(subject="corp root", names=(), ca=True)

    assert len(Bundle.parse(pem_of(foreign.sign()))) == 1
