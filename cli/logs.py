"""How programs log: one JSON object a line, or readable lines on a terminal; always to stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

from cli.logwriter import LineWriter


def configure(*, debug: bool = False, quiet: bool = False) -> None:
    """Set up logging for a program that serves.

    Args:
        debug: Whether debug lines are written too.
        quiet: Whether only warnings are, for a command that reports in its own words.
    """
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    on_terminal = sys.stderr.isatty()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    processors: list[Any] = [structlog.processors.add_log_level, stamp]
    factory: Any
    if on_terminal:
        processors.append(structlog.dev.ConsoleRenderer())
        factory = structlog.PrintLoggerFactory(sys.stderr)
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ]
        factory = structlog.BytesLoggerFactory(_stream())
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    # Libraries' own lines: only what is wrong.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(levelname)s %(message)s")


def _stream() -> Any:
    try:
        return LineWriter(sys.stderr.fileno())
    except OSError:
        # No file stands behind it, as where a program calls us within itself.
        return sys.stderr.buffer


def _dumps(event: dict[str, Any], **options: Any) -> bytes:
    return orjson.dumps(event, default=options.get("default"))
