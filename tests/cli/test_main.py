"""The command's frame: which commands there are, and what becomes of an error."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.main import COMMANDS, cli, told
from sharing.errors import InputError, UnavailableError

COMMAND = Path(sys.executable).parent / "gpu-sharing"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_lists_the_commands_that_exist_and_imports_none() -> None:
    listing = "import sys; from cli.main import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, timeout=60, check=True
    )

    assert "Commands:" in done.stdout
    assert "  admit " in done.stdout
    modules = done.stdout.splitlines()[-1].split()
    assert "cli.main" in modules
    assert not {"yaml", "pydantic", "aiohttp", "rich", "cli.admit"} & set(modules)


@pytest.mark.parametrize("name", [name for name in COMMANDS if find_spec(f"cli.{name}")])
def test_each_command_is_called_as_its_module_and_explains_itself(name: str) -> None:
    command = getattr(importlib.import_module(f"cli.{name}"), name)
    assert isinstance(command, click.Command)

    result = CliRunner().invoke(cli, [name, "--help"])

    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


def test_the_version_is_told() -> None:
    assert run("--version").stdout.startswith("gpu-sharing, version ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["admit"], "there is nothing to decide about"),
        (["admit", "-f"], "requires an argument"),
        (["admit", "-f", "x", "-o", "xml"], "'xml' is not one of"),
        (["--nonsense"], "No such option"),
        (["webhook", "--static", ".", "--cert", "a"], "a certificate is needed"),
        (["webhook", "--cert", "a", "--key", "b", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str], says: str) -> None:
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_input_is_one_sentence_and_exit_2() -> None:
    done = run("admit", "-f", "/nonexistent/x.yaml")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: /nonexistent/x.yaml: there is no such file or folder; check the path\n"
    )


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--debug"], {}), ([], {"GPU_SHARING_DEBUG": "1"})]
)
def test_debug_shows_where_an_error_came_from(
    arguments: list[str], environment: dict[str, str]
) -> None:
    done = run(*arguments, "admit", "-f", "/nonexistent/x.yaml", **environment)

    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("check the path\n")


def test_the_runner_of_click_sees_the_same_exit_status() -> None:
    result = CliRunner().invoke(cli, ["admit", "-f", "/nonexistent/x.yaml"])

    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (InputError("file", "is wrong"), 2, "file: is wrong"),
        (UnavailableError("port", "is taken"), 1, "port: is taken"),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [InputError("file", "is wrong")])]),
            2,
            "file: is wrong",
        ),
        (
            OSError("a\nb"),
            1,
            "gpu-sharing itself failed: OSError: a b; run gpu-sharing --debug … to see where",
        ),
    ],
)
def test_any_error_becomes_one_line(error: Exception, status: int, says: str) -> None:
    result = told(error, debug=False)

    assert (result.exit_code, result.message) == (status, says)


def test_a_fault_beside_an_input_error_is_not_hidden_by_it() -> None:
    group = ExceptionGroup("g", [InputError("file", "is wrong"), ZeroDivisionError("x")])

    assert "itself failed" in told(group, debug=False).message


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    pods = "\n---\n".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\nspec: {{containers: [{{name: c}}]}}"
        for n in range(2000)
    )
    (tmp_path / "pods.yaml").write_text(pods)
    started = subprocess.Popen(
        [COMMAND, "admit", "-f", str(tmp_path), "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.read(1)
    started.stdout.close()

    status = started.wait(60)

    assert started.stderr.read() == b""
    started.stderr.close()
    # Python's buffers may take the last write for done before the pipe is seen to be broken.
    assert status in (0, 141)
