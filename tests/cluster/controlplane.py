"""Tier a: a real etcd and kube-apiserver, four seconds to start; with a scheduler, tier c's base.

There is no controller manager: deleted namespaces stay, nothing makes default service accounts,
and so the admission plugin that needs them is off.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cluster import daemons, flags
from tests.cluster.access import Access, write_kubeconfig
from tests.cluster.keys import Authority, service_account_keys
from tests.cluster.plainhttp import body_of
from tests.cluster.ports import free_ports
from tests.cluster.waiting import until

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
SCHEDULER: Final = "kube-scheduler"
START_TIMEOUT_S: Final = 90.0
_TRIES: Final = 4
_TAKEN: Final = "address already in use"


class ControlPlane:
    """A running etcd and kube-apiserver; a context manager.

    Args:
        folder: For data, keys and logs; must exist and be empty.
        scheduler: Run the scheduler too.
        api_flags: Flags that the API server gets in addition.
        choose: Ports that are free; somebody may take one before a program listens on it, so
            others are chosen then.

    Attributes:
        access: Kubeconfigs for whoever a test wants to be.
        logs: One file for each program.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = False,
        api_flags: Sequence[str] = (),
        choose: Callable[[int], Sequence[int]] = free_ports,
    ) -> None:
        self._folder = folder
        self._choose = choose
        self._with_scheduler = scheduler
        self._api_flags = api_flags
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._daemons = daemons.Daemons(self.logs)
        self._authority = Authority.create(folder / "keys")
        self._take_ports()

    def _take_ports(self) -> None:
        ports = self._choose(4)
        self._etcd_port, self._peer_port, self._port, self._scheduler_port = ports
        self.access = Access(self._folder, f"https://127.0.0.1:{self._port}", self._authority)

    def __enter__(self) -> Self:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._start()
            except daemons.DaemonEndedError as error:
                self.stop_all()
                if not tries_left or _TAKEN not in str(error):
                    raise
                shutil.rmtree(self._folder / ETCD, ignore_errors=True)
                self._take_ports()
            except BaseException:
                self.stop_all()
                raise
            else:
                break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all()

    def _start(self) -> None:
        data = self._folder / ETCD
        self._daemons.start(ETCD, flags.etcd(data, client=self._etcd_port, peer=self._peer_port))
        self._wait(ETCD)
        self._daemons.start(APISERVER, self._apiserver_flags())
        self._wait(APISERVER)
        if self._with_scheduler:
            self._daemons.start(SCHEDULER, self._scheduler_flags())
            self._wait(SCHEDULER)

    def _apiserver_flags(self) -> list[str]:
        authority = self.access.authority
        more = (
            "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )  # fmt: skip
        return flags.apiserver(
            etcd_port=self._etcd_port,
            port=self._port,
            serving=authority.server("apiserver", ("127.0.0.1", "localhost")),
            clients=authority.pair.certificate,
            accounts=service_account_keys(authority.folder),
            more=(*more, *self._api_flags),
        )

    def _scheduler_flags(self) -> list[str]:
        authority = self.access.authority
        kubeconfig = write_kubeconfig(
            self._folder / "scheduler.kubeconfig",
            self.access.server,
            self.access.ca,
            authority.client("scheduler", "system:kube-scheduler"),
        )
        configuration = self._folder / "scheduler.json"
        configuration.write_text(flags.scheduler_configuration(kubeconfig))
        keys = self._folder / "scheduler-keys"
        return [
            *flags.scheduler(configuration),
            f"--secure-port={self._scheduler_port}",
            f"--cert-dir={keys}",
        ]

    def _wait(self, name: str) -> None:
        looks = {
            ETCD: self._etcd_is_well,
            APISERVER: self.access.is_ready,
            SCHEDULER: self._scheduler_listens,
        }
        until(f"{name} is well", looks[name], timeout_s=START_TIMEOUT_S, still=self._daemons.check)

    def _etcd_is_well(self) -> bool:
        return '"true"' in body_of(self._etcd_port, "/health")

    def _scheduler_listens(self) -> bool:
        with closing(socket.create_connection(("127.0.0.1", self._scheduler_port))):
            return True

    def start(self, name: str) -> None:
        """Start a program that was stopped or killed, on the same data, and wait for it."""
        self._daemons.start(name)
        self._wait(name)

    def stop(self, name: str) -> None:
        """End a program in good order; an API server takes its time."""
        self._daemons.stop(name)

    def kill(self, name: str) -> None:
        """End a program with kill -9."""
        self._daemons.kill(name)

    def restart(self, name: str) -> None:
        """Kill a program and start it again on the same data and address."""
        self.kill(name)
        self.start(name)

    def pids(self) -> dict[str, int]:
        """Process ids by program."""
        return self._daemons.pids()

    def log_tail(self, name: str = "*", lines: int = 20) -> str:
        """The last lines of a program's log, or of all, for a failing test."""
        return daemons.tail(self.logs, name, lines)

    def stop_all(self) -> None:
        """End all programs."""
        self._daemons.stop_all()
