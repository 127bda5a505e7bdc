"""How programs log: one JSON object a line, or readable lines on a terminal; always to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from cli.lean import structlog
from cli.logwriter import LineWriter

_LINE: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z

Write = Callable[[bytes], object]


def configure(*, debug: bool = False, quiet: bool = False) -> None:
    """Set up logging for a program that serves.

    Args:
        debug: Whether debug lines are written too.
        quiet: Whether only warnings are, for a command that reports in its own words.
    """
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    processors: list[Any]
    factory: Any
    if sys.stderr.isatty():
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        processors = [structlog.processors.add_log_level, stamp, structlog.dev.ConsoleRenderer()]
        factory = structlog.PrintLoggerFactory(sys.stderr)
    else:
        lines = _Lines(_writing())
        processors = [_line]

        def factory(*_: Any) -> _Lines:
            return lines

    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    # Libraries' own lines: only what is wrong.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(levelname)s %(message)s")


class _Lines:
    """What structlog hands finished lines to; levels are part of the line already."""

    def __init__(self, write: Write) -> None:
        self.msg = self.debug = self.info = self.warning = self.error = self.critical = write


def _writing() -> Write:
    try:
        return LineWriter(sys.stderr.fileno()).write
    except OSError:
        # No file stands behind it, as where a program calls us within itself.
        stream = sys.stderr.buffer

    def write(line: bytes) -> None:
        stream.write(line)
        stream.flush()

    return write


def _line(logger: object, method: str, event: dict[str, Any]) -> bytes:
    """An event as its line: all of structlog's usual steps in one, as each costs a call."""
    event["level"] = method
    event["timestamp"] = datetime.now(UTC)
    if "exc_info" in event:
        structlog.processors.format_exc_info(logger, method, event)
    return orjson.dumps(event, default=repr, option=_LINE)
