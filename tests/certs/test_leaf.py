"""Certificates and keys as people hand them in, and what is said about each mistake."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.errors import CertificateError, Fault
from certs.identity import covers, service_names
from certs.leaf import Leaf, find_chain, find_faults, identities_of, load_key
from certs.pem import MAX_PEM_BYTES
from tests.certs.makers import (
    DSA_KEY,
    ED25519_KEY,
    NAME,
    NOW,
    RSA_KEY,
    Recipe,
    key_pem_of,
    make_authority,
    make_leaf,
    pem_of,
)

LEAF = make_leaf()[1]
CERT, KEY = LEAF.certificate_pem, LEAF.key_pem


def test_a_leaf_comes_back_from_its_own_pem() -> None:
    again = Leaf.from_pem(CERT, KEY)

    assert again == LEAF
    assert again.key_pem == KEY
    assert again.fingerprint == LEAF.fingerprint


@pytest.mark.parametrize("style", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_keys_are_read_in_every_usual_encoding(style: PrivateFormat) -> None:
    assert load_key(key_pem_of(RSA_KEY, style=style)).key_size == RSA_KEY.key_size  # type: ignore[union-attr]


def test_an_ed25519_pair_is_read() -> None:
    certificate = Recipe(key=ED25519_KEY).sign()

    assert Leaf.from_pem(pem_of(certificate), key_pem_of(ED25519_KEY)).certificate == certificate


@pytest.mark.parametrize(
    ("certificate", "key", "says"),
    [
        pytest.param(b"", KEY, "certificate: is empty; expected PEM text", id="empty"),
        pytest.param(b"\x30\x82", KEY, "certificate: is not PEM: begins with", id="DER"),
        pytest.param(KEY, KEY, "holds a private key where a certificate belongs", id="swapped"),
        pytest.param(CERT + KEY, KEY, "holds a private key where a cert", id="key pasted behind"),
        pytest.param(CERT[:-9], KEY, "cut short or has no matching end", id="cut short"),
        pytest.param(CERT, CERT, "key: holds a certificate and no key", id="certificate as key"),
        pytest.param(CERT, KEY + KEY, "key: holds 2 private keys", id="two keys"),
        pytest.param(CERT, b"nonsense", "key: is not PEM", id="garbage as key"),
        pytest.param(
            CERT, key_pem_of(RSA_KEY, passphrase=b"x"), "key: is encrypted", id="encrypted"
        ),
        pytest.param(CERT, key_pem_of(DSA_KEY), "no TLS server can identify itself", id="DSA"),
        pytest.param(CERT, key_pem_of(RSA_KEY), "does not belong to the key in key", id="mismatch"),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nTm90IERFUg==\n-----END CERTIFICATE-----\n",
            KEY,
            "holds a certificate that does not decode",
            id="base64 of something else",
        ),
        pytest.param(
            CERT,
            b"-----BEGIN PRIVATE KEY-----\nTm90IERFUg==\n-----END PRIVATE KEY-----\n",
            "key: does not decode",
            id="key of something else",
        ),
        pytest.param(
            b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n",
            KEY,
            "have the request signed",
            id="request",
        ),
        pytest.param(b"x" * (MAX_PEM_BYTES + 1), KEY, "at most 1048576 bytes", id="too long"),
    ],
)
def test_each_mistake_is_said_in_one_sentence(certificate: bytes, key: bytes, says: str) -> None:
    with pytest.raises(CertificateError) as caught:
        Leaf.from_pem(certificate, key)

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_message_shows_a_key() -> None:
    body = KEY.decode().splitlines()[1]
    with pytest.raises(CertificateError) as caught:
        Leaf.from_pem(KEY, KEY)

    assert body not in str(caught.value)


def test_a_pair_in_the_wrong_order_is_a_mismatch_that_names_the_order() -> None:
    authority, leaf = make_leaf()
    with pytest.raises(CertificateError, match="the leaf comes first") as caught:
        Leaf.from_pem(authority.pem + leaf.certificate_pem, leaf.key_pem)

    assert caught.value.fault is Fault.MISMATCH


def faults_of(leaf: Leaf, **options: object) -> list[Fault]:
    return [fault.fault for fault in find_faults(leaf, **{"now": NOW, **options})]  # type: ignore[arg-type]


def test_a_sound_leaf_has_no_fault() -> None:
    authority, leaf = make_leaf(NAME, "127.0.0.1")

    options = {"names": [NAME, "127.0.0.1"], "authorities": [authority.certificate]}
    assert faults_of(leaf, **options) == []


@pytest.mark.parametrize(
    ("later", "fault"),
    [(timedelta(days=31), Fault.EXPIRED), (timedelta(hours=-2), Fault.NOT_YET_VALID)],
)
def test_dates_are_checked_at_the_time_given(later: timedelta, fault: Fault) -> None:
    assert faults_of(LEAF, now=NOW + later) == [fault]


def test_a_missing_name_is_told_with_the_names_that_are_there() -> None:
    (fault,) = find_faults(LEAF, now=NOW, names=["other.ns.svc"])

    assert fault.fault is Fault.WRONG_NAME
    assert "'other.ns.svc'" in str(fault)
    assert NAME in str(fault)


def test_a_leaf_of_another_authority_is_untrusted() -> None:
    stranger = make_authority(99)

    assert faults_of(LEAF, authorities=[stranger.certificate]) == [Fault.UNTRUSTED]
    assert faults_of(LEAF, authorities=[]) == [Fault.UNTRUSTED]


def test_a_leaf_of_an_expired_authority_is_untrusted() -> None:
    root = Recipe(subject="root", names=(), ca=True, life=timedelta(days=1))
    leaf = Recipe(life=timedelta(days=30))
    pair = Leaf(certificate=leaf.sign(root), key=leaf.key)

    assert faults_of(pair, authorities=[root.sign()]) == []
    late = NOW + timedelta(days=2)
    assert faults_of(pair, authorities=[root.sign()], now=late) == [Fault.UNTRUSTED]


def test_a_certificate_for_clients_is_not_for_serving() -> None:
    recipe = Recipe(usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))

    pair = Leaf(certificate=recipe.sign(), key=recipe.key)

    assert faults_of(pair) == [Fault.NOT_FOR_SERVING]


def test_a_chain_over_an_intermediate_is_followed() -> None:
    root = Recipe(subject="root", names=(), ca=True)
    middle = Recipe(subject="middle", names=(), ca=True, signs=True)
    leaf = Recipe()
    top, between = root.sign(), middle.sign(root)
    pair = Leaf.from_pem(pem_of(leaf.sign(middle), between), key_pem_of(leaf.key))

    assert find_chain(pair, [top], now=NOW) == (between, top)
    bare = Leaf(certificate=pair.certificate, key=pair.key)
    assert find_chain(bare, [top], now=NOW) is None


@pytest.mark.parametrize(
    "middle",
    [
        pytest.param(Recipe(subject="middle", names=(), ca=False), id="not an authority"),
        pytest.param(Recipe(subject="middle", names=(), ca=None), id="without constraints"),
        pytest.param(Recipe(subject="middle", names=(), ca=True, signs=False), id="may not sign"),
    ],
)
def test_a_chain_over_something_that_may_not_sign_is_not_followed(middle: Recipe) -> None:
    root = Recipe(subject="root", names=(), ca=True)
    leaf = Recipe()
    pair = Leaf(certificate=leaf.sign(middle), key=leaf.key, chain=(middle.sign(root),))

    assert find_chain(pair, [root.sign()], now=NOW) is None


def test_path_lengths_are_respected() -> None:
    root = Recipe(subject="root", names=(), ca=True, path_length=0)
    middle = Recipe(subject="middle", names=(), ca=True)
    leaf = Recipe()
    pair = Leaf(certificate=leaf.sign(middle), key=leaf.key, chain=(middle.sign(root),))

    assert find_chain(pair, [root.sign()], now=NOW) is None


def test_a_circle_of_intermediates_ends() -> None:
    one = Recipe(subject="one", names=(), ca=True)
    two = Recipe(subject="two", names=(), ca=True)
    leaf = Recipe()
    pair = Leaf(certificate=leaf.sign(one), key=leaf.key, chain=(one.sign(two), two.sign(one)))

    assert find_chain(pair, [make_authority().certificate], now=NOW) is None


@pytest.mark.parametrize(
    ("carried", "asked", "answers"),
    [
        ("*.gpu-sharing.svc", "webhook.gpu-sharing.svc", True),
        ("*.gpu-sharing.svc", "a.webhook.gpu-sharing.svc", False),
        ("*.gpu-sharing.svc", "gpu-sharing.svc", False),
        ("webhook.gpu-sharing.svc", "WEBHOOK.gpu-sharing.svc", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
    ],
)
def test_names_match_as_callers_match_them(carried: str, asked: str, answers: bool) -> None:
    _, leaf = make_leaf(carried)

    assert covers(identities_of(leaf.certificate), asked) is answers


def test_a_service_is_called_by_its_short_name_first() -> None:
    assert service_names("gpu-sharing-webhook", "gpu-sharing") == (
        "gpu-sharing-webhook.gpu-sharing.svc",
        "gpu-sharing-webhook",
        "gpu-sharing-webhook.gpu-sharing",
        "gpu-sharing-webhook.gpu-sharing.svc.cluster.local",
    )


def test_an_error_told_about_a_wider_subject_keeps_its_fault() -> None:
    (fault,) = find_faults(LEAF, now=NOW, names=["other.ns.svc"])

    wider = fault.about("Secret certs")

    assert isinstance(wider, CertificateError)
    assert wider.fault is Fault.WRONG_NAME
    assert str(wider).startswith("Secret certs: certificate: does not carry")
