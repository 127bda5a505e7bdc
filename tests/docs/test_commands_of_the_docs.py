"""Every command in the docs runs.

A page's ```console blocks are one session: their ``$`` lines run in order in one folder, which
holds the files that the page shows below a ``<!-- file: NAME -->`` line. A line that ends in
``&`` starts a server and is waited for until it prints; ``# exits N`` states another exit code
than 0. Lines below a command, where there are any, must be what it prints. ``make VERB`` is
checked to exist: CI runs the verbs themselves.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXITS = re.compile(r"\s+# exits (\d+)$")
START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 100


def commands(page: Path) -> list[tuple[str, str]]:
    """Each command of a page, with the output that the page shows."""
    found = []
    for block in BLOCK.findall(page.read_text("utf-8")):
        for part in block.split("\n$ "):
            command, _, output = part.removeprefix("$ ").partition("\n")
            found.append((command.strip(), output.rstrip()))
    return found


def verbs() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def pages() -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if commands(page)]


@pytest.fixture
def session(
    short_dir: Path,
) -> Iterator[tuple[Path, dict[str, str], list[subprocess.Popen[bytes]]]]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(short_dir),
        "NO_COLOR": "1",
    }
    servers: list[subprocess.Popen[bytes]] = []
    yield short_dir, environment, servers
    for server in servers:
        os.killpg(server.pid, signal.SIGTERM)
    for server in servers:
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(5)
        if server.stdout:
            server.stdout.close()


def start(command: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server and wait until it says on stdout that it is there."""
    server = subprocess.Popen(
        ["bash", "-c", "exec " + command.removesuffix("&")],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        assert selector.select(START_TIMEOUT_S), f"{command!r} printed nothing"
    return server


def run(command: str, output: str, folder: Path, environment: dict[str, str]) -> None:
    exits = EXITS.search(command)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", EXITS.sub("", command)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    expected = int(exits[1]) if exits else 0
    assert done.returncode == expected, f"$ {command}\n{done.stdout}\n{done.stderr}"
    if output:
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        assert printed.strip() == output.strip()


@pytest.mark.parametrize("page", pages())
def test_the_commands_of_a_page_run_in_order(
    page: Path,
    session: tuple[Path, dict[str, str], list[subprocess.Popen[bytes]]],
) -> None:
    folder, environment, servers = session
    for name, content in FILE.findall(page.read_text("utf-8")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    for command, output in commands(page):
        verb = re.fullmatch(r"make ([a-z-]+)", command)
        if verb:
            assert verb[1] in verbs(), f"{page.name} names make {verb[1]}"
        elif command.endswith("&"):
            servers.append(start(command, folder, environment))
        else:
            run(command, output, folder, environment)


def test_there_are_pages_with_commands() -> None:
    assert shutil.which("bash")
    assert any(commands(page) for page in PAGES)


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []
