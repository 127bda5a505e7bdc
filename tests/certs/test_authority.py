"""Authorities and the leaves they issue."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import hypothesis.strategies as st
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given

from certs.authority import AUTHORITY_NAME, Authority, make_key, make_serial
from certs.errors import CertificateError, Fault
from certs.healing import is_ours
from certs.leaf import is_authority
from tests.certs.makers import NAME, NOW, make_authority, make_leaf

SEEDS = st.integers(min_value=0, max_value=2**32)
MOMENTS = st.datetimes(
    min_value=datetime(2020, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2090, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
HOSTS = (
    st.lists(LABEL, min_size=2, max_size=4)
    .map(".".join)
    .filter(lambda name: not name.replace(".", "").isdigit())
)


@given(seed=SEEDS, now=MOMENTS, names=st.lists(HOSTS, min_size=1, max_size=4, unique=True))
def test_every_leaf_verifies_by_an_independent_verifier(
    seed: int, now: datetime, names: list[str]
) -> None:
    randomness = random.Random(seed).randbytes
    authority = Authority.make(now=now, randomness=randomness)
    leaf = authority.issue(names, now=now, randomness=randomness)

    builder = PolicyBuilder().store(Store([authority.certificate])).time(now)
    for name in names:
        builder.build_server_verifier(x509.DNSName(name)).verify(leaf.certificate, [])


@given(seed=SEEDS, days=st.integers(1, 800), late=st.integers(0, 360))
def test_no_leaf_outlives_its_authority(seed: int, days: int, late: int) -> None:
    randomness = random.Random(seed).randbytes
    authority = make_authority(seed)
    now = NOW + timedelta(days=late)

    leaf = authority.issue([NAME], now=now, randomness=randomness, life=timedelta(days=days))

    assert authority.certificate.not_valid_before_utc <= leaf.not_before
    assert leaf.not_before < leaf.not_after <= authority.certificate.not_valid_after_utc


def test_an_expired_authority_issues_nothing() -> None:
    authority = make_authority(life=timedelta(days=1))

    with pytest.raises(CertificateError, match="make a fresh authority") as caught:
        authority.issue([NAME], now=NOW + timedelta(days=1), randomness=random.Random(0).randbytes)

    assert caught.value.fault is Fault.EXPIRED


def test_an_authority_may_sign_leaves_and_nothing_below_them() -> None:
    authority, leaf = make_leaf()
    extensions = authority.certificate.extensions

    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert is_authority(authority.certificate)
    assert not is_authority(authority.certificate, depth=1)
    assert not is_authority(leaf.certificate)


def test_a_leaf_may_identify_a_server_and_nothing_else() -> None:
    authority, leaf = make_leaf()
    extensions = leaf.certificate.extensions

    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    own = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    issuers = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert own.key_identifier == issuers.value.digest
    assert leaf.certificate.subject != leaf.certificate.issuer


def test_what_is_made_follows_from_time_and_randomness_alone() -> None:
    one, two, other = make_authority(1), make_authority(1), make_authority(2)

    assert one.certificate.serial_number == two.certificate.serial_number
    assert one.key.private_numbers() == two.key.private_numbers()
    assert one.certificate.subject == two.certificate.subject
    assert one.certificate.subject != other.certificate.subject


@given(st.binary(min_size=40, max_size=40))
def test_any_randomness_gives_a_key_of_the_curve(seed: bytes) -> None:
    key = make_key(lambda size: seed[:size])

    assert isinstance(key.curve, ec.SECP256R1)


@given(st.binary(min_size=20, max_size=20))
def test_any_randomness_gives_a_serial_that_fits(seed: bytes) -> None:
    serial = make_serial(lambda size: seed[:size])

    assert 0 < serial < 2**159


def test_ours_are_told_from_others_by_name() -> None:
    assert is_ours(make_authority().certificate)
    assert AUTHORITY_NAME == "gpu-sharing authority"


def test_keys_show_in_no_repr() -> None:
    authority, leaf = make_leaf()

    assert "key" not in repr(authority)
    assert "key" not in repr(leaf)
