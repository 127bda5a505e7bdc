"""What a container on a real cluster tells of itself, by a shell of this machine."""

from __future__ import annotations

import subprocess
from typing import Any

from cli.trial.viewing import Seen, telling, told

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "lab"},
    "spec": {
        "initContainers": [
            {"name": "warm", "image": "registry.example/app:1"},
            {"name": "side", "image": "registry.example/app:1", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "main", "image": "registry.example/app:1", "command": ["serve"]}],
    },
}


def command(pod: dict[str, Any], field: str, number: int = 0) -> list[str]:
    words: list[str] = pod["spec"][field][number]["command"]
    return words


def test_a_container_tells_what_concerns_gpus_and_nothing_else() -> None:
    init = command(telling(POD, "busybox:1"), "initContainers")
    environment = {"PATH": "/bin:/usr/bin", "NVIDIA_VISIBLE_DEVICES": "GPU-1", "HOME": "/"}

    log = subprocess.run(init, env=environment, capture_output=True, text=True, check=True).stdout

    view = told(log)
    assert view is not None
    assert view.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}


def test_only_what_is_told_to_the_end_counts() -> None:
    whole = (
        "-- gpu-sharing trial: env\nCUDA_X=a=b\nHOME=/\n"
        "-- gpu-sharing trial: devices\n/dev/nvidia0\n/dev/nvidia1 (refused)\n"
        "-- gpu-sharing trial: mounts\n"
        "1 2 0:1 / / rw - overlay o rw\n1 2 0:1 / /proc rw - proc p rw\n"
        "1 2 0:1 / /proc/acpi ro - tmpfs t ro\n1 2 0:1 /x /mps/pipe rw - ext4 /dev/a rw\n"
        "-- gpu-sharing trial: end\n"
    )

    assert told(whole) == Seen(
        env={"CUDA_X": "a=b"},
        device_nodes=("/dev/nvidia0", "/dev/nvidia1 (refused)"),
        mounts=("/mps/pipe",),
    )
    assert [told(whole[:length]) for length in (0, 30, len(whole) - 5)] == [None, None, None]


def test_init_containers_end_and_the_others_stay() -> None:
    pod = telling(POD, "busybox:1")

    assert "sleep" not in command(pod, "initContainers")[-1]
    assert "sleep" in command(pod, "initContainers", 1)[-1]
    assert "sleep" in command(pod, "containers")[-1]
    assert {c["image"] for f in ("initContainers", "containers") for c in pod["spec"][f]} == {
        "busybox:1"
    }
    assert POD["spec"]["containers"][0]["command"] == ["serve"]
