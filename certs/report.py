"""Who shows what, who trusts whom, and until when: for people and for scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certs.bundle import NOBODY, Bundle
from certs.errors import Fault
from certs.healing import voucher_print
from certs.leaf import find_faults, fingerprint
from certs.schedule import renew_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from certs.leaf import Leaf
    from certs.sight import Configuration

_SHORT: Final = 12
_BY_CALLER: Final = {Fault.WRONG_NAME, Fault.UNTRUSTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """One place that has to trust what is served.

    Attributes:
        where: A webhook of a configuration, or a file.
        host: The name that it asks for; empty where unknown.
        bundle: Whom it trusts; None where that is not known.
    """

    where: str
    host: str
    bundle: Bundle | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is served and who trusts it.

    Attributes:
        now: When this was so.
        current: What is served; None where nothing is.
        next: What will be served after it.
        trusted: Whom everybody is to trust.
        trusting: Who has to trust.
        oddities: What could not be read.
    """

    now: datetime
    current: Leaf | None
    next: Leaf | None = None
    trusted: Bundle = NOBODY
    trusting: tuple[Trusting, ...] = ()
    oddities: tuple[str, ...] = ()

    def faults(self) -> tuple[str, ...]:
        """Everything that makes calls fail now, one sentence each; empty if none do."""
        if self.current is None:
            return ("there is no certificate to serve", *self.oddities)
        found = [*find_faults(self.current, now=self.now, subject="certificate")]
        for one in self.trusting:
            seen = find_faults(
                self.current,
                now=self.now,
                names=[one.host] if one.host else [],
                authorities=None if one.bundle is None else one.bundle.authorities,
                subject=f"certificate for {one.where}",
            )
            found += [fault for fault in seen if fault.fault in _BY_CALLER]
        return (*self.oddities, *map(str, found))

    def role_of(self, authority: str) -> str:
        """What an authority is for, by its fingerprint."""
        if authority == voucher_print(self.current, self.trusted):
            return "current"
        if authority == voucher_print(self.next, self.trusted):
            return "next"
        return "retiring" if authority in self.trusted.fingerprints else "unknown"


def trusting_of(configurations: tuple[Configuration, ...]) -> tuple[Trusting, ...]:
    """Every webhook of every configuration."""
    return tuple(
        Trusting(where=f"{one.kind}/{one.name} {webhook}", host=host, bundle=Bundle.salvage(pem))
        for one in configurations
        for webhook, host, pem in zip(one.webhooks, one.hosts, one.bundles, strict=True)
    )


def lines_of(report: Report) -> Iterator[str]:
    """The report as lines of text, without colour, no wider than 100 columns."""
    yield from _leaf_lines("serving", report.current, report)
    if report.next is not None:
        yield from _leaf_lines("next", report.next, report)
    for authority in report.trusted:
        own = fingerprint(authority)
        end = authority.not_valid_after_utc
        yield (
            f"authority  {own[:_SHORT]}  {report.role_of(own):<8}  "
            f"until {_moment(end)}{_left(end, report.now)}"
        )
    if not report.trusting:
        yield "callers    none are known"
    for one in report.trusting:
        yield f"caller     {one.where}"
        trusts = [fingerprint(each)[:_SHORT] for each in one.bundle or ()]
        whom = "unknown" if one.bundle is None else ", ".join(trusts) or "nobody"
        yield f"           asks for {one.host or 'any name'}"
        yield f"           trusts {whom}"


def json_of(report: Report) -> dict[str, Any]:
    """The same facts for scripts; times in RFC 3339."""
    return {
        "now": report.now.isoformat(),
        "current": _leaf_json(report.current, report),
        "next": _leaf_json(report.next, report),
        "authorities": [
            {
                "fingerprint": fingerprint(one),
                "role": report.role_of(fingerprint(one)),
                "subject": one.subject.rfc4514_string(),
                "notAfter": one.not_valid_after_utc.isoformat(),
            }
            for one in report.trusted
        ],
        "trusting": [
            {
                "where": one.where,
                "host": one.host,
                "authorities": None
                if one.bundle is None
                else [fingerprint(each) for each in one.bundle],
            }
            for one in report.trusting
        ],
        "faults": list(report.faults()),
    }


def _leaf_lines(label: str, leaf: Leaf | None, report: Report) -> Iterator[str]:
    if leaf is None:
        yield f"{label:<10} nothing"
        return
    yield f"{label:<10} {leaf.fingerprint[:_SHORT]}  until {_moment(leaf.not_after)}" + _left(
        leaf.not_after, report.now
    )
    voucher = voucher_print(leaf, report.trusted)
    yield f"           by authority {voucher[:_SHORT] or 'unknown'}, renewed at " + _moment(
        renew_at(leaf)
    )
    yield from (f"           for {name}" for name in leaf.names)


def _leaf_json(leaf: Leaf | None, report: Report) -> dict[str, Any] | None:
    if leaf is None:
        return None
    return {
        "fingerprint": leaf.fingerprint,
        "serial": f"{leaf.certificate.serial_number:x}",
        "names": list(leaf.names),
        "notBefore": leaf.not_before.isoformat(),
        "notAfter": leaf.not_after.isoformat(),
        "renewAt": renew_at(leaf).isoformat(),
        "authority": voucher_print(leaf, report.trusted) or None,
    }


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _left(end: datetime, now: datetime) -> str:
    days = (end - now).total_seconds() / 86_400
    return f", {days:.0f} days left" if days >= 1 else ", EXPIRED" if days < 0 else ", under a day"
