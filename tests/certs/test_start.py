"""The identity that the demo and the embedded cluster start with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from certs.leaf import Leaf
from certs.start import fresh_identity
from sharing.errors import InputError

NOW = datetime(2026, 5, 4, 12, 0, 30, 5, tzinfo=UTC)
NAME = "gpu-sharing-webhook.gpu-sharing.svc"


def test_fresh_identity_verifies_by_an_independent_verifier() -> None:
    ca_pem, leaf_pem, key_pem = fresh_identity([NAME, "127.0.0.1"], NOW)

    leaf = Leaf.from_pem(leaf_pem, key_pem)
    store = Store([x509.load_pem_x509_certificate(ca_pem)])
    chain = (
        PolicyBuilder()
        .store(store)
        .time(NOW)
        .build_server_verifier(x509.DNSName(NAME))
        .verify(leaf.certificate, [])
    )
    assert len(chain) == 2


def test_fresh_identity_is_valid_for_callers_whose_clock_is_an_hour_behind() -> None:
    identity = fresh_identity([NAME], NOW, life=timedelta(days=2))

    leaf = Leaf.from_pem(identity.leaf_pem, identity.key_pem)
    assert leaf.not_before == datetime(2026, 5, 4, 11, 0, 30, tzinfo=UTC)
    assert leaf.not_after == datetime(2026, 5, 6, 12, 0, 30, tzinfo=UTC)


def test_two_fresh_identities_share_no_name_and_no_serial() -> None:
    one, two = (
        x509.load_pem_x509_certificate(fresh_identity([NAME], NOW).ca_pem) for _ in range(2)
    )

    assert one.subject != two.subject
    assert one.serial_number != two.serial_number


@pytest.mark.parametrize(
    "name",
    ["", "a b", "-a", "a..b", "1.2.3.400", "a" * 64, "*.*.a", "x/y", "ü.example", "a\n", "*"],
)
def test_fresh_identity_refuses_what_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="neither a host name nor an IP address"):
        fresh_identity([name], NOW)


def test_fresh_identity_refuses_to_have_no_name() -> None:
    with pytest.raises(InputError, match="none given"):
        fresh_identity([], NOW)
