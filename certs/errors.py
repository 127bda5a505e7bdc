"""What can be wrong with certificates, in words for whoever has to put it right.

GpuSharingError
└── InputError
    └── CertificateError   a certificate, key or bundle that cannot be used, and why
"""

from __future__ import annotations

from enum import StrEnum

from sharing.errors import GpuSharingError, InputError


class Fault(StrEnum):
    """Why a certificate, key or bundle cannot be used: the closed set of logs and metrics."""

    UNREADABLE = "unreadable"
    """No PEM, or PEM of something else than what belongs there."""
    MISMATCH = "mismatch"
    """Certificate and key are sound but not a pair."""
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    WRONG_NAME = "wrong-name"
    """The certificate does not carry a name that callers ask for."""
    UNTRUSTED = "untrusted"
    """No authority of the bundle vouches for the certificate."""
    NOT_AN_AUTHORITY = "not-an-authority"
    """A certificate in a bundle may not sign others."""
    NOT_FOR_SERVING = "not-for-serving"
    """The certificate may not identify a TLS server."""
    REFUSED = "refused"
    """The TLS library will not serve it, for example because the key is too short."""


class CertificateError(InputError):
    """A certificate, key or bundle that cannot be used.

    Args:
        fault: Which kind of wrong it is.
        subject: Where it comes from: a file, a Secret's key.
        wrong: What is wrong with it.
        expected: What would have been right.
        fix: What to do now.
        example: One spelling that works.
    """

    def __init__(
        self,
        fault: Fault,
        subject: str,
        wrong: str,
        *,
        expected: str = "",
        fix: str = "",
        example: str = "",
    ) -> None:
        super().__init__(subject, wrong, expected=expected, fix=fix, example=example)
        self.fault = fault

    def about(self, subject: str) -> GpuSharingError:
        """The same error told about a wider subject."""
        return CertificateError(
            self.fault,
            subject,
            f"{self.subject}: {self.wrong}" if self.subject else self.wrong,
            expected=self.expected,
            fix=self.fix,
            example=self.example,
        )
