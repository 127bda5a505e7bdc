"""Tier b as tests see it: a whole Kubernetes node in private namespaces, six seconds to start.

The API server is reached through a listener on loopback, the kubelet through its socket files in
the box's folder, and a webhook of a test listens inside through a socket that the box hands out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from tests.cluster import daemons, leftovers, programs
from tests.cluster.access import Access
from tests.cluster.box import control, keeper
from tests.cluster.box.commands import inside, output_of
from tests.cluster.box.configuration import IMAGE, PAUSE
from tests.cluster.box.control import Op, Request
from tests.cluster.box.credentials import make_keys
from tests.cluster.box.forward import Forwarder
from tests.cluster.box.image import write_image
from tests.cluster.box.joining import join
from tests.cluster.box.spec import API_PORT, NodeSpec
from tests.cluster.keys import Authority
from tests.cluster.needs import BUSYBOX

_REPOSITORY: Final = Path(__file__).parents[3]
_END_TIMEOUT_S: Final = 40.0
_CONTROL_TIMEOUT_S: Final = 120.0
_SECOND: Final[dict[str, Any]] = {
    "node": "node-1",
    "address": "10.99.0.2",
    "pods": "10.98.1.0/24",
    "server": f"https://10.99.0.1:{API_PORT}",
    "control_plane": False,
}


class BoxError(AssertionError):
    """A box did not start, or not end."""


class Box:
    """One running node; a context manager.

    Args:
        labels: Of the Node object.
        api_flags: Flags that the API server gets in addition.
        kubelet: Goes over the kubelet's configuration, such as ``{"featureGates": …}``.
        files: Executables that pods find in their image, by path.
        joins: A running box with a control plane, for a second node of its cluster.

    Attributes:
        spec: What it is, with all folders.
        access: Kubeconfigs, for use outside, for whoever a test wants to be.
        phases: Seconds since the start at which each step of it was done.
        keep_logs: A folder to be made that takes the logs at the end; None for none.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        api_flags: Sequence[str] = (),
        kubelet: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        joins: Box | None = None,
    ) -> None:
        self.spec = NodeSpec(
            folder=leftovers.make_folder(),
            programs={name: programs.find(name) for name in programs.NODE},
            labels=dict(labels or {}),
            api_flags=tuple(api_flags),
            kubelet=dict(kubelet or {}),
            **(_SECOND if joins else {}),
        )
        self._joins = joins
        self._files = dict(files or {})
        self._listener = socket.create_server(("127.0.0.1", 0))
        if joins is None:
            self._authority = Authority.create(self.spec.keys)
            own = self.spec.folder / "access"
            own.mkdir()
            server = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
            self.access = Access(own, server, self._authority)
        else:
            self._authority = joins.access.authority.lend(self.spec.keys)
            self.access = joins.access
        self.phases: dict[str, float] = {}
        self.keep_logs: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._forwarders: list[Forwarder] = []
        self._daemons: list[subprocess.Popen[bytes]] = []

    # -- life

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(BoxError):  # why it did not start is the one to tell
                self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until the node takes pods.

        Raises:
            BoxError: It did not start; the logs' tails are in the message.
        """
        for folder in (self.spec.logs, self.spec.kubelet_dir, self.spec.cdi_dir):
            folder.mkdir()
        make_keys(self.spec, self._authority)
        write_image(self.spec.image, BUSYBOX, (IMAGE, PAUSE), files=self._files)
        self.spec.save()
        ready, done = os.pipe()
        passed = (self._listener.fileno(), done)
        self._keeper = self._start_keeper(passed)
        os.close(done)
        self._listener.close()
        with os.fdopen(ready, encoding="utf-8") as pipe:
            if self._joins is not None:
                join(self._joins.spec, self.spec, self._check)
            self.phases = _phases(pipe)
        if not self.phases:
            raise BoxError(f"the box did not start\n{self.log_tail()}")

    def _check(self) -> None:
        if self._keeper is None or self._keeper.poll() is not None:
            raise BoxError(f"the box ended\n{self.log_tail()}")

    def _start_keeper(self, passed: tuple[int, int]) -> subprocess.Popen[bytes]:
        module = "tests.cluster.box.keeper"
        with (self.spec.logs / "keeper.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, str(self.spec.folder), *map(str, passed)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                cwd=_REPOSITORY,
                start_new_session=True,  # Ctrl-C is for the test run, which then ends us
            )

    def stop(self) -> None:
        """End everything; the folder is removed, its logs go to ``keep_logs``.

        Raises:
            BoxError: Something did not go away.
        """
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        for forwarder in self._forwarders:
            forwarder.close()
        code = 0
        if self._keeper is not None:
            _, code = self._keeper.communicate(keeper.STOP, _END_TIMEOUT_S), self._keeper.returncode
            self._keeper = None
        self._listener.close()
        said = f"{self.log_tail('keeper')}\n{self.log_tail('init')}"
        if self.keep_logs is not None and self.spec.logs.exists():
            shutil.copytree(self.spec.logs, self.keep_logs, dirs_exist_ok=True)
        shutil.rmtree(self.spec.folder)
        if code:
            raise BoxError(f"the box did not end well\n{said}")

    # -- where things are

    @property
    def node(self) -> str:
        """The Node's name."""
        return self.spec.node

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's folder: ``device-plugins``, ``plugins``, ``pod-resources`` and so on."""
        return self.spec.kubelet_dir

    @property
    def cdi_dir(self) -> Path:
        """Where the container runtime looks for CDI specs; empty after a reboot."""
        return self.spec.cdi_dir

    @property
    def device_plugins(self) -> Path:
        """The folder of ``kubelet.sock``."""
        return self.kubelet_dir / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """The socket of the PodResources API."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    @property
    def boot_id(self) -> str:
        """What programs inside read as the kernel's boot id."""
        return self.spec.boot_id_file.read_text().strip()

    @property
    def pid(self) -> int:
        """The first process, as seen from outside."""
        return control.server_pid(self.spec.control_socket)

    @property
    def keeper_pid(self) -> int:
        """The process between us and the box."""
        assert self._keeper is not None, "the box does not run"
        return self._keeper.pid

    def log_tail(self, name: str = "*", lines: int = 20) -> str:
        """The last lines of a program's log, or of all."""
        return daemons.tail(self.spec.logs, name, lines)

    # -- orders

    def _ask(self, request: Request) -> control.Reply:
        return control.ask(self.spec.control_socket, request, timeout_s=_CONTROL_TIMEOUT_S)

    def status(self) -> dict[str, dict[str, int | None]]:
        """``pid`` (inside) and ``exit`` by program; exit is None while it runs."""
        programs_: dict[str, dict[str, int | None]] = self._ask(Request(op=Op.STATUS)).values[
            "programs"
        ]
        return programs_

    def start_program(
        self,
        name: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program of the node again, or any other inside, and wait for what is known.

        Args:
            name: As in ``status``; also the log's name.
            arguments: A command line, for a program that the box does not know.
            environment: Variables for such a program.
        """
        self._ask(
            Request(
                op=Op.START,
                name=name,
                arguments=tuple(arguments),
                environment=dict(environment or {}),
            )
        )

    def stop_program(self, name: str, how: signal.Signals = signal.SIGTERM) -> int:
        """End a program; its exit code."""
        code: int = self._ask(Request(op=Op.STOP, name=name, signal=how.name)).values["exit"]
        return code

    def kill(self, name: str) -> None:
        """End a program with kill -9."""
        self.stop_program(name, signal.SIGKILL)

    def restart(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a program and start it again as it was."""
        self.stop_program(name, how)
        self.start_program(name)

    def reboot(self, *, whole: bool = False) -> None:
        """Cut the power and start again: disks stay, memory is lost, the boot id changes.

        Args:
            whole: The control plane too; else it runs on, as if it were another machine's.
        """
        self._ask(Request(op=Op.REBOOT, whole=whole))

    def listener(self, port: int = 0, host: str = "127.0.0.1") -> socket.socket:
        """A listening socket inside, for this process to serve on; port 0 is a free one."""
        listener = self._ask(Request(op=Op.LISTEN, host=host, port=port)).listener
        assert listener is not None
        return listener

    def let_in(self, outside_port: int, port: int = 0, host: str = "127.0.0.1") -> int:
        """Let programs inside reach a server of this machine; returns the port inside.

        For a server that is a process of its own, such as the webhook under test.
        """
        listener = self.listener(port, host)
        inside = int(listener.getsockname()[1])
        self._forwarders.append(Forwarder(listener, ("127.0.0.1", outside_port)))
        return inside

    # -- commands

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs a command inside."""
        return inside(self.pid, arguments)

    def exec(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """Run a command inside; its standard output.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        return output_of(self.command(*arguments), timeout_s)

    def kubectl(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """Run kubectl outside as admin, also for exec and logs; its standard output.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        kubectl = str(programs.find("kubectl"))
        config = str(self.access.kubeconfig())
        return output_of([kubectl, "--kubeconfig", config, *arguments], timeout_s, self.spec.folder)

    def start_outside(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process of this machine that ends with the box at the latest."""
        log = self.spec.logs / f"{name}.log"
        started = daemons.start_process(arguments, log, environment=environment)
        self._daemons.append(started)
        return started


def _phases(pipe: IO[str]) -> dict[str, float]:
    line = pipe.readline()  # ends, empty, when the box does
    phases: dict[str, float] = json.loads(line) if line else {}
    return phases
