"""The harness's own parts, without a cluster; these run everywhere."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.cluster import leftovers
from tests.cluster.box.cgroups import parents
from tests.cluster.box.control import (
    ControlError,
    ControlServer,
    Op,
    Reply,
    Request,
    ask,
    server_pid,
)
from tests.cluster.box.forward import Forwarder
from tests.cluster.box.image import write_image
from tests.cluster.box.spec import NodeSpec
from tests.cluster.daemons import start_process
from tests.cluster.identity import identity_of, is_alive
from tests.cluster.keys import Authority
from tests.cluster.needs import is_static
from tests.cluster.ports import free_ports
from tests.cluster.waiting import NeverHappenedError, until

NAMES = ("test.local/busybox:1", "test.local/pause:1")


def test_our_cgroup_is_found_in_every_v1_hierarchy() -> None:
    cgroup = "9:name=systemd:/\n4:memory:/runner/one\n2:cpu,cpuacct:/\n0::/unified\n"
    mountinfo = "\n".join(
        f"{number} 31 0:1 / {mount} rw,relatime - cgroup cgroup rw,{options}"
        for number, mount, options in (
            (32, "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
            (35, "/sys/fs/cgroup/memory", "memory"),
            (40, "/sys/fs/cgroup/systemd", "xattr,name=systemd"),
        )
    )

    assert parents(cgroup, f"{mountinfo}\n41 31 0:2 / /u rw - cgroup2 cgroup2 rw") == {
        "name=systemd": Path("/sys/fs/cgroup/systemd/"),
        "memory": Path("/sys/fs/cgroup/memory/runner/one"),
        "cpu,cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct/"),
    }


def test_our_cgroup_is_found_where_a_container_has_a_part_of_the_machines() -> None:
    mountinfo = "32 31 0:1 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"

    assert parents("4:memory:/docker/abc/sub\n", mountinfo) == {
        "memory": Path("/sys/fs/cgroup/memory/sub")
    }
    assert parents("4:memory:/docker/abc\n", mountinfo) == {"memory": Path("/sys/fs/cgroup/memory")}


def test_a_client_certificate_names_user_and_groups(tmp_path: Path) -> None:
    pair = Authority.create(tmp_path).client("it", "system:node:n", ("system:nodes", "more"))

    subject = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "system:node:n"
    ]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [a.value for a in groups] == ["system:nodes", "more"]


def _image(folder: Path, name: str) -> bytes:
    busybox = folder / "busybox"
    busybox.write_bytes(b"a program")
    path = folder / name
    write_image(path, busybox, NAMES, files={"/opt/look": b"#!/bin/sh\n"})
    return path.read_bytes()


def _members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = [member for member in tar if member.isfile()]
        return {member.name: _content(tar, member) for member in files}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def test_an_image_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    assert _image(tmp_path, "a.tar") == _image(tmp_path, "b.tar")


def test_an_image_is_whole_from_its_names_to_its_files(tmp_path: Path) -> None:
    files = _members(_image(tmp_path, "a.tar"))

    def blob(entry: dict[str, Any]) -> bytes:
        content = files[f"blobs/{entry['digest'].replace(':', '/')}"]
        assert len(content) == entry["size"]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == entry["digest"]
        return content

    entries = json.loads(files["index.json"])["manifests"]
    assert tuple(e["annotations"]["io.containerd.image.name"] for e in entries) == NAMES
    manifest = json.loads(blob(entries[0]))
    (layer,) = manifest["layers"]
    assert json.loads(blob(manifest["config"]))["rootfs"]["diff_ids"] == [layer["digest"]]
    inside = _members(blob(layer))
    assert inside == {"bin/busybox": b"a program", "opt/look": b"#!/bin/sh\n"}


def test_a_process_is_known_by_more_than_its_number() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        identity = identity_of(child.pid)
        alive = is_alive(identity)
        child.kill()
        child.wait()

    assert alive
    assert not is_alive(identity)
    assert not is_alive(f"{os.getpid()}-1"), "another process had our number before"
    assert is_alive("something"), "what is no identity must not be swept"


def test_folders_of_the_dead_are_swept_and_no_others(tmp_path: Path) -> None:
    ours = leftovers.make_folder(tmp_path)
    (tmp_path / "gs-cluster-unmarked").mkdir()
    make = "import pathlib, sys; from tests.cluster.leftovers import make_folder"
    script = f"{make}; print(make_folder(pathlib.Path(sys.argv[1])))"
    made = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )

    assert leftovers.sweep(tmp_path) == [Path(made.stdout.strip())]
    assert sorted(tmp_path.iterdir()) == sorted([ours, tmp_path / "gs-cluster-unmarked"])


def test_a_program_that_wants_a_loader_is_not_static(tmp_path: Path) -> None:
    assert not is_static(Path(sys.executable).resolve())
    assert not is_static(tmp_path / "absent")


def test_what_a_box_is_survives_its_file(tmp_path: Path) -> None:
    spec = NodeSpec(
        folder=tmp_path,
        programs={"runc": Path("/x/runc")},
        labels={"a": "b"},
        api_flags=("--v=2",),
        kubelet={"maxPods": 3},
    )
    spec.save()

    assert NodeSpec.load(tmp_path) == spec


@pytest.fixture
def control_socket(short_dir: Path) -> Iterator[Path]:
    def answer(request: Request) -> Reply:
        if request.op is Op.LISTEN:
            listener = socket.create_server((request.host, request.port))
            return Reply(values={"port": listener.getsockname()[1]}, listener=listener)
        raise KeyError(request.name)

    path = short_dir / "control.sock"
    with contextlib.closing(ControlServer(path, answer)):
        yield path


def test_a_listener_crosses_the_control_socket(control_socket: Path) -> None:
    reply = ask(control_socket, Request(op=Op.LISTEN), timeout_s=5)

    assert reply.listener is not None
    with reply.listener as listener, socket.create_connection(("127.0.0.1", reply.values["port"])):
        accepted, _ = listener.accept()
        accepted.close()


def test_what_fails_inside_is_told_outside(control_socket: Path) -> None:
    with pytest.raises(ControlError, match="stop kubelet: KeyError: 'kubelet'"):
        ask(control_socket, Request(op=Op.STOP, name="kubelet"), timeout_s=5)


def test_the_other_end_of_the_control_socket_is_known(control_socket: Path) -> None:
    assert server_pid(control_socket) == os.getpid()


def test_a_forwarder_copies_both_ways_and_passes_the_end_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        door = socket.create_server(("127.0.0.1", 0))
        address = door.getsockname()
        forwarder = Forwarder(door, target.getsockname())
        with contextlib.closing(forwarder), socket.create_connection(address) as near:
            near.sendall(b"question")
            near.shutdown(socket.SHUT_WR)
            far, _ = target.accept()
            with far, far.makefile("rb") as asked:
                assert asked.read() == b"question"
                far.sendall(b"answer")
            with near.makefile("rb") as answered:
                assert answered.read() == b"answer"


def test_a_daemon_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    command, log = ["sleep", "100"], tmp_path / "log"
    asking = threading.Thread(target=lambda: started.append(start_process(command, log)))
    asking.start()
    asking.join()

    (daemon,) = started
    with daemon:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.wait(0.3)
        finally:
            daemon.kill()


def test_free_ports_are_not_those_that_the_kernel_gives_away() -> None:
    ports = free_ports(4)

    assert len(set(ports)) == 4
    assert max(ports) < 32_768


def test_waiting_says_what_it_saw_last() -> None:
    def look() -> bool:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(NeverHappenedError, match=r"the door opens: not within 0 s; .*nobody"):
        until("the door opens", look, timeout_s=0)
