"""How an authority is replaced without a caller noticing: trust first, serve later.

    make     a fresh pair goes into the Secret as the next one
    trust    every bundle gets its authority beside the current one
    wait     until every API server uses the patched bundles
    promote  the next pair becomes the current one; replicas see it and swap
    forget   the old authority leaves the Secret, then the bundles

Each is decided by `next_step` from nothing but (Secret, bundles, what this replica saw,
the time), so any replica carries on where another died, without a leader: writes are
locked optimistically, and whoever loses reads and decides again. The Secret comes first
and bundles follow it, both when an authority is added and when it is dropped.

What others break is put right by the same function: see `certs.healing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import Authority
from certs.bundle import Bundle
from certs.healing import heal, voucher_print
from certs.identity import covers
from certs.leaf import find_faults, fingerprint, identities_of
from certs.schedule import MAX_AUTHORITIES, renew_at
from certs.step import Act, Make, Patch, Reason, Rest, Step, Wait, Write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from certs.authority import Randomness
    from certs.errors import CertificateError
    from certs.leaf import Leaf
    from certs.schedule import RotationSettings
    from certs.secret import Stored
    from certs.sight import Configuration, Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that a decision goes by.

    Attributes:
        stored: The Secret; it has to be read after the configurations.
        configurations: Every webhook configuration of ours that exists.
        sight: What this replica has seen, this look included.
        now: The time, best the API server's.
        settings: Names and times.
    """

    stored: Stored
    configurations: tuple[Configuration, ...]
    sight: Sight
    now: datetime
    settings: RotationSettings

    @property
    def name(self) -> str:
        """The name that API servers ask for."""
        return self.settings.names[0]

    def faults_of(self, leaf: Leaf, subject: str) -> tuple[CertificateError, ...]:
        """What keeps callers from accepting a leaf, were it served now."""
        return find_faults(
            leaf,
            now=self.now,
            names=[self.name],
            authorities=self.stored.trusted.authorities,
            subject=subject,
        )

    @property
    def expired(self) -> frozenset[str]:
        """Trusted authorities whose time is over."""
        trusted = self.stored.trusted
        return trusted.fingerprints - trusted.prune(self.now).fingerprints

    @property
    def superseded(self) -> frozenset[str]:
        """Trusted authorities of neither the current leaf nor the next."""
        stored = self.stored
        kept = {voucher_print(leaf, stored.trusted) for leaf in (stored.current, stored.next)}
        return stored.trusted.fingerprints - kept

    @property
    def superseded_for(self) -> timedelta:
        """How long until superseded authorities may go; zero or less if they may now.

        By the date, some time after the promotion; and, since dates jump, only if this
        replica has seen the new leaf in place for as long as others may need to take it.
        """
        voucher = voucher_print(self.stored.current, self.stored.trusted)
        seen = min(self.sight.current_for_s, self.sight.trusted_for_s(voucher))
        unsettled = self.settings.settle - timedelta(seconds=max(seen, 0.0))
        since = self.stored.promoted_at or self.now
        return max(unsettled, since + self.settings.overlap - self.now)


def next_step(situation: Situation) -> Step:
    """What to do now, and why."""
    stored = situation.stored
    healed, why = heal(
        stored,
        situation.configurations,
        situation.sight.served,
        now=situation.now,
        name=situation.name,
    )
    if why:
        return Write(act=Act.HEAL, stored=healed, why="; ".join(why))
    patch = _patch(stored, situation.configurations)
    if patch is not None:
        return patch
    if stored.next is not None:
        return _bring_on(situation, stored.next)
    reason, why_renew = _wish(situation)
    if reason is not None:
        return _make(situation, reason, why_renew)
    return _forget(situation) or Rest(until=_next_date(situation), why="everything is in order")


def carry_out(
    step: Make, *, now: datetime, randomness: Randomness, settings: RotationSettings
) -> Stored:
    """The Secret after a fresh pair was made; its authority's key is forgotten here.

    The authority lives as long as its one leaf: a longer life would only make it trusted
    for longer, a shorter one would break the leaf (kyverno#13639).
    """
    life, backdate = settings.life, settings.backdate
    authority = Authority.make(now=now, randomness=randomness, life=life, backdate=backdate)
    leaf = authority.issue(
        settings.names, now=now, randomness=randomness, life=life, backdate=backdate
    )
    return replace(
        step.onto,
        next=leaf,
        trusted=step.onto.trusted.merge(Bundle.of([authority.certificate])),
        answered=step.onto.asked,
    )


def _patch(stored: Stored, configurations: tuple[Configuration, ...]) -> Patch | None:
    """Bundles follow the Secret, byte for byte, in every entry of every configuration."""
    pem = stored.trusted.to_pem()
    stale = tuple(
        one for one in configurations if pem and any(bundle != pem for bundle in one.bundles)
    )
    if not stale:
        return None
    wanted = stored.trusted.fingerprints
    settled = wanted - {voucher_print(stored.next, stored.trusted)}
    live = [Bundle.salvage(bundle).fingerprints for one in stale for bundle in one.bundles]
    if all(wanted <= held <= wanted | set(stored.retired) for held in live):
        act, why = Act.FORGET, "an authority is no longer needed"
    elif all(settled <= held for held in live):
        act, why = Act.TRUST, "the next authority has to be trusted before its leaf is served"
    else:
        act, why = Act.REPAIR, "others emptied, replaced or changed what is trusted"
    return Patch(act=act, bundle=stored.trusted, configurations=stale, why=why)


def _bring_on(situation: Situation, following: Leaf) -> Step:
    """Promote the next pair as soon as everybody trusts it."""
    stored, settings = situation.stored, situation.settings
    faults = situation.faults_of(following, "next.crt")
    if faults or situation.now >= renew_at(following):
        why = str(faults[0]) if faults else "it has become old before it was served"
        return Write(act=Act.HEAL, stored=_drop_next(stored), why=f"the next leaf goes: {why}")
    voucher = voucher_print(following, stored.trusted)
    trusted_for = timedelta(seconds=max(situation.sight.trusted_for_s(voucher), 0.0))
    if trusted_for < settings.propagation and not _nobody_serves(situation):
        return Wait(
            duration=settings.propagation - trusted_for,
            why="the next leaf is served once every API server uses the patched bundles",
        )
    promoted = replace(stored, current=following, next=None, promoted_at=situation.now)
    return Write(act=Act.PROMOTE, stored=promoted, why="the next leaf is trusted everywhere")


def _nobody_serves(situation: Situation) -> bool:
    """Whether no replica can serve anything that callers accept: then waiting only hurts."""
    stored = situation.stored
    idle = {voucher_print(stored.next, stored.trusted)}
    if stored.current is not None:
        if not situation.faults_of(stored.current, "tls.crt"):
            return False
        idle.add(voucher_print(stored.current, stored.trusted))
    return stored.trusted.prune(situation.now).fingerprints <= idle


def _wish(situation: Situation) -> tuple[Reason | None, str]:
    """Whether a fresh pair is wanted."""
    stored = situation.stored
    current = stored.current
    if current is None:
        return Reason.MISSING, "there is no certificate yet"
    faults = situation.faults_of(current, "tls.crt")
    if faults:
        return Reason.UNUSABLE, str(faults[0])
    # Names beyond those wanted are no reason: two versions of us, one of which wants more
    # names, would renew each other's certificates for as long as an upgrade takes.
    carried = identities_of(current.certificate)
    missing = [name for name in situation.settings.names if not covers(carried, name)]
    if missing:
        return Reason.NAMES, f"the certificate lacks the names {', '.join(missing)}"
    if not isinstance(current.key, ec.EllipticCurvePrivateKey):
        return Reason.KEY_TYPE, "the key is not an ECDSA key"
    if stored.asked not in {"", stored.answered}:
        return Reason.ASKED, "somebody asked for it"
    if situation.now >= renew_at(current):
        return Reason.DUE, f"the certificate expires at {current.not_after:%Y-%m-%d %H:%M} UTC"
    return None, ""


def _make(situation: Situation, reason: Reason, why: str) -> Step:
    """Make a pair if there is room for its authority; else make room, or wait for it."""
    onto = _retire(situation.stored, situation.expired)
    if len(onto.trusted) >= MAX_AUTHORITIES:
        forgotten = _forget(situation)
        if forgotten is not None:
            return forgotten
        if reason not in {Reason.UNUSABLE, Reason.MISSING}:
            return Wait(
                duration=situation.superseded_for,
                why=f"{why}; an older authority may still be in use, and bundles hold "
                f"{MAX_AUTHORITIES} at most",
            )
        onto = _retire(onto, [_least_useful(onto, situation.now)])
    return Make(onto=onto, reason=reason, why=why)


def _forget(situation: Situation) -> Write | None:
    """Drop the authorities of leaves that nobody serves any more."""
    old = situation.expired
    if situation.superseded_for <= timedelta():
        old |= situation.superseded
    if not old:
        return None
    return Write(
        act=Act.FORGET,
        stored=_retire(situation.stored, old),
        why="authorities have expired, or their leaves were replaced long enough ago",
    )


def _least_useful(stored: Stored, now: datetime) -> str:
    """The authority to give up where everything is full and nothing current works.

    First one whose leaf nobody accepts now because the clock was put back, else the oldest.
    """
    kept = voucher_print(stored.current, stored.trusted)
    candidates = [one for one in stored.trusted if fingerprint(one) != kept]
    return fingerprint(
        min(
            candidates,
            key=lambda one: (
                one.not_valid_before_utc <= now,
                one.not_valid_before_utc,
                fingerprint(one),
            ),
        )
    )


def _drop_next(stored: Stored) -> Stored:
    """Without the next pair and its authority, under which nobody has ever served."""
    kept = voucher_print(stored.current, stored.trusted)
    gone = {voucher_print(stored.next, stored.trusted)} - {kept}
    return _retire(replace(stored, next=None), gone)


def _retire(stored: Stored, authorities: Iterable[str]) -> Stored:
    """Without these authorities, and with a note that they were dropped on purpose."""
    gone = sorted(set(authorities) & stored.trusted.fingerprints)
    return replace(stored, trusted=stored.trusted.without(gone), retired=(*stored.retired, *gone))


def _next_date(situation: Situation) -> datetime:
    stored, now = situation.stored, situation.now
    dates = [one.not_valid_after_utc for one in stored.trusted]
    if stored.current is not None:
        dates.append(renew_at(stored.current))
    if situation.superseded:
        dates.append(now + situation.superseded_for)
    return min((date for date in dates if date > now), default=now + situation.settings.settle)
