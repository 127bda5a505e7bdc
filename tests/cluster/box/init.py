"""The first process of a box: sets it up, starts everything, reaps, takes orders.

    python -m tests.cluster.box.init FOLDER LISTENER READY

LISTENER is a descriptor of a listening socket from outside, READY one of a pipe that takes one JSON
line when the node takes pods. When this process ends, the kernel ends all others of the box.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from tests.cluster.box.control import ControlServer, Op, Reply, Request
from tests.cluster.box.forward import Forwarder
from tests.cluster.box.machine import Machine, environment
from tests.cluster.box.node import Node
from tests.cluster.box.spec import API_PORT, NodeSpec
from tests.cluster.box.supervisor import Supervisor


class FirstProcess:
    """What runs beside the reaping loop."""

    def __init__(self, spec: NodeSpec) -> None:
        self._supervisor = Supervisor(spec.logs)
        self._node = Node(spec, self._supervisor, Machine(spec, self._supervisor.run))
        self._spec = spec

    def begin(self, listener: int, ready: int) -> None:
        """Start in a thread of its own, since this one has to reap."""
        for descriptor in (listener, ready):
            os.set_inheritable(descriptor, False)
        threading.Thread(target=self._start, args=(listener, ready), daemon=True).start()
        self._supervisor.reap_forever()

    def _start(self, listener: int, ready: int) -> None:
        try:
            ControlServer(self._spec.control_socket, self._answer)
            self._node.start()
            if self._spec.control_plane:
                Forwarder(socket.socket(fileno=listener), ("127.0.0.1", API_PORT))
            os.write(ready, json.dumps(self._node.phases).encode() + b"\n")
            os.close(ready)
        except BaseException:  # noqa: BLE001 - this thread's end must be the box's
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _answer(self, request: Request) -> Reply:
        match request.op:
            case Op.STATUS:
                return Reply(values={"programs": self._supervisor.status()})
            case Op.START:
                pid = self._supervisor.start(request.name, request.arguments, request.environment)
                self._node.wait_for(request.name)
                return Reply(values={"pid": pid})
            case Op.STOP:
                how = signal.Signals[request.signal]
                return Reply(values={"exit": self._supervisor.stop(request.name, how)})
            case Op.LISTEN:
                listener = socket.create_server((request.host, request.port))
                return Reply(values={"port": listener.getsockname()[1]}, listener=listener)
            case Op.REBOOT:
                self._node.reboot(whole=request.whole)
                return Reply()


def main() -> None:
    """Be the first process."""
    folder, listener, ready = sys.argv[1:]
    # The kernel gives the first process no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    spec = NodeSpec.load(Path(folder))
    environment(spec)
    FirstProcess(spec).begin(int(listener), int(ready))


if __name__ == "__main__":
    main()
