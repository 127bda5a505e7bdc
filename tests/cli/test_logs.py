"""Logging: whole lines, in order, and no waiting for a reader who does not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from cli.logwriter import LineWriter

LOGGING = """
import structlog
from cli import logs
logs.configure()
log = structlog.get_logger()
for number in range(1000):
    log.info("line was written", number=number, text="a\\nb")
log.debug("line was not written")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("division failed")
"""


def test_lines_are_json_in_order_and_all_there_at_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING], capture_output=True, text=True, timeout=60, check=True
    )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["number"] for line in lines[:-1]] == list(range(1000))
    assert (lines[0]["event"], lines[0]["level"]) == ("line was written", "info")
    assert "ZeroDivisionError" in lines[-1]["exception"]
    assert done.stdout == ""


def test_a_pipe_that_nobody_reads_stops_nobody_and_losses_are_told() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer, most_lines=10)
    for number in range(10_000):
        lines.write(b"%05d%s\n" % (number, b"x" * 100))

    received = b""
    while b"dropped" not in received:
        received += os.read(reader, 65536)
        lines.write(b"more\n")
    lines.close()
    os.close(writer)
    os.close(reader)

    whole = [line for line in received.splitlines() if line.startswith(b"0")]
    assert whole == sorted(whole)
    assert len(whole) < 10_000


def test_a_program_that_logs_has_no_colours_loaded_and_can_load_them_later() -> None:
    code = (
        "import sys, cli.logs, structlog.dev\n"
        "loaded = 'rich' in sys.modules\n"
        "import rich.console\n"
        "sys.exit(loaded)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
