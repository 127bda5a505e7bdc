"""``gpu-sharing plan``: steps, blockers and refusals from each form of node; nothing changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from embedded.apiserver.server import ApiServer
from sharing.api.crd import crd_manifests
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS, GPU_NODES
from sharing.nvml import simulator
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.store import Store

NODES = """
- name: n1
  gpus: [H100-80GB, A100-40GB]
  layout:
  - {gpus: "0", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}
"""
LAYOUT = """
- {gpus: "0", mode: mig, sizes: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}
- {gpus: "1", mode: mig, sizes: {3g.20gb: 2}}
"""
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command on files given by keyword; returns what came of it."""

    def invoke(*more: str, **files: str) -> Result:
        arguments = ["plan"]
        for option, content in files.items():
            path = tmp_path / f"{option}.yaml"
            path.write_text(content, "utf-8")
            arguments += [f"--{option}", str(path)]
        return CliRunner().invoke(cli, [*arguments, *more])

    return invoke


def steps(result: Result, gpu: int = 0) -> list[str]:
    found: list[str] = [step["do"] for step in json.loads(result.stdout)[0]["gpus"][gpu]["steps"]]
    return found


def test_only_what_differs_is_touched_and_each_step_is_told(run: Run) -> None:
    result = run(node=NODES, layout=LAYOUT)

    assert result.exit_code == 0, result.output
    assert "2 of 2 GPUs change" in result.stdout
    assert "1. withdraw 2 shares (2 nvidia.com/mig-1g.10gb)" in result.stdout
    assert "destroy 1g.10gb at 2+1" in result.stdout
    assert "destroy 3g.40gb" not in result.stdout
    assert "switch MIG mode on by a reset" in result.stdout  # the A100's
    assert "interrupts: clients of this GPU, monitoring too" in result.stdout
    assert "Nothing was changed." in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_the_json_form_has_steps_with_their_undoing(run: Run) -> None:
    result = run("--json", node=NODES, layout=LAYOUT)

    first = json.loads(result.stdout)[0]["gpus"][0]
    assert first["now"] == "mig 1x 3g.40gb 4x 1g.10gb"
    assert [step["do"] for step in first["steps"]] == [
        "withdraw 2 shares (2 nvidia.com/mig-1g.10gb)",
        "destroy 1g.10gb at 2+1",
        "destroy 1g.10gb at 3+1",
        "create 2g.20gb at 2+2",
        "offer mig 1x 3g.40gb 1x 2g.20gb 2x 1g.10gb",
    ]
    assert first["steps"][1]["undo"] == "create 1g.10gb at 2+1"


def test_a_node_that_is_what_it_shall_be_has_no_steps(run: Run) -> None:
    result = run(node=NODES, layout='- {gpus: "0", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}')

    assert "0 of 2 GPUs change" in result.stdout
    assert result.exit_code == 0


def test_a_layout_that_a_board_cannot_have_is_refused_with_the_nearest(run: Run) -> None:
    result = run(node=NODES, layout='- {gpus: "0", mode: mig, sizes: {4g.40gb: 2}}')

    assert result.exit_code == 3
    assert "refused board H100-80GB: cannot hold {4g.40gb: 2}" in result.stdout


def test_a_running_process_of_a_simulated_node_blocks_and_is_named(
    run: Run, tmp_path: Path
) -> None:
    state = tmp_path / "gpus.json"
    simulator.create(state, "1xH100-80GB")
    process = Store(state).change(lambda machine: operate.start_process(machine, "0"))
    before = state.read_bytes()

    result = run("--node", str(state), layout="- {gpus: all, mode: mig, sizes: {1g.10gb: 7}}")

    assert result.exit_code == 3
    assert f"waits: process {process.pid} uses GPU 0" in result.stdout
    assert state.read_bytes() == before


def gpu_node(**spec: Any) -> dict[str, Any]:
    share = {
        "id": "GPU-a::0",
        "resource": "gpu.sharing/timeslice-1of2",
        "memoryMiB": 40779,
        "holders": [{"namespace": "ml", "pod": "train", "container": "main"}],
    }
    gpu = {
        "index": 0,
        "uuid": "GPU-a",
        "board": "H100-80GB",
        "product": "NVIDIA H100 80GB HBM3",
        "memoryMiB": 81559,
        "layout": {"mode": "time-slicing", "sizes": {"1of2": 2}},
        "shares": [share, share | {"id": "GPU-a::1", "holders": []}],
    }
    return {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": "n1"},
        "spec": spec,
        "status": {"gpus": [gpu]},
    }


def test_a_pod_of_a_gpunode_blocks_and_is_named(run: Run) -> None:
    result = run(node=json.dumps(gpu_node()), layout="- {gpus: all, mode: exclusive}")

    assert result.exit_code == 3
    assert "withdraw 2 shares" in result.stdout
    assert "waits: pod ml/train holds GPU-a::0" in result.stdout


def test_without_a_layout_the_gpunodes_own_wish_is_planned(run: Run) -> None:
    wish = {"uuid": "GPU-a", "layout": {"mode": "mps", "sizes": {"1of4": 4}}}

    result = run("--json", node=json.dumps(gpu_node(gpus=[wish])))

    assert "start MPS for mps 4x 1of4" in steps(result)
    assert run(node=NODES).exit_code == 2


POD = "{apiVersion: v1, kind: Pod, metadata: {name: x}}"
MIG_CONFIGS = """
version: v1
mig-configs:
  one:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  two:
  - {devices: all, device-filter: "0x20B010DE", mig-enabled: true, mig-devices: {3g.20gb: 2}}
"""


def test_mig_parteds_file_is_planned_by_the_name_of_a_configuration(run: Run) -> None:
    one = run("--json", "--mig-config", "one", node=NODES, layout=MIG_CONFIGS)
    two = run("--json", "--mig-config", "two", node=NODES, layout=MIG_CONFIGS)

    assert "offer mig 7x 1g.10gb" in steps(one)
    assert steps(one, gpu=1) == []
    assert steps(two) == []
    assert "offer mig 2x 3g.20gb" in steps(two, gpu=1)


@pytest.mark.parametrize(
    ("more", "files", "said"),
    [
        ((), {"node": NODES, "layout": MIG_CONFIGS}, "expected one of one, two"),
        (("--mig-config", "odd"), {"node": NODES, "layout": MIG_CONFIGS}, "'odd' is not in"),
        (("--mig-config", "one"), {"node": NODES, "layout": LAYOUT}, "has no mig-configs"),
        (("--node", "absent.yaml"), {"layout": LAYOUT}, "no file that is there"),
        ((), {"node": "- {name: n1, gpus: 2xH100}", "layout": LAYOUT}, "not in the catalogue"),
        ((), {"node": POD, "layout": LAYOUT}, "'Pod'"),
        ((), {"node": NODES, "layout": "- {gpus: all, mode: odd}"}, "mode"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    run: Run, more: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    result = run(*more, **files)

    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


async def test_a_node_of_a_cluster_is_read_by_its_name(tmp_path: Path) -> None:
    layout = tmp_path / "layout.yaml"
    layout.write_text("- {gpus: all, mode: exclusive}", "utf-8")
    async with ApiServer() as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(server.kubeconfig()), "utf-8")
        token = server.kubeconfig()["users"][0]["user"]["token"]

        async def source() -> credentials.Access:
            return credentials.Access(
                server=server.url, origin="test", authorization=f"Bearer {token}"
            )

        async with Client(source) as client:
            for manifest in crd_manifests():
                await client.create(CRDS, manifest)
            item = gpu_node()
            status = {"status": item.pop("status")}
            await client.create(GPU_NODES, item)
            await client.patch(GPU_NODES, "n1", status, subresource="status")

        result = await asyncio.to_thread(
            CliRunner().invoke,
            cli,
            [
                *("plan", "--node", "n1", "--layout", str(layout)),
                *("--kubeconfig", str(kubeconfig)),
            ],
        )
    assert result.exit_code == 3, result.output
    assert "waits: pod ml/train holds GPU-a::0" in result.output


NVIDIA = """
version: v1
flags: {migStrategy: mixed, failOnInitError: false}
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4, devices: [1]}
"""


CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: time-slicing-config-all}
data:
  any: |-
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
  mig: |-
    version: v1
    mig-configs: {all-small: [{devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}]}
"""


def test_a_file_of_the_gpu_operators_config_map_is_chosen_by_its_name(run: Run) -> None:
    sliced = run("--mig-config", "any", node=NODES, layout=CONFIG_MAP)
    assert "wanted  time-slicing 4x 1of4" in sliced.stdout
    small = run("--mig-config", "mig", node=NODES, layout=CONFIG_MAP)
    assert "wanted  mig 2x 3g.40gb" in small.stdout

    nameless = run(node=NODES, layout=CONFIG_MAP)
    assert nameless.exit_code == 2
    assert "one of any, mig" in nameless.output
    broken = run(node=NODES, layout='{kind: ConfigMap, data: {a: "version: v2\\nsharing: {}"}}')
    assert "data.a" in broken.output
    empty = run(node=NODES, layout="{kind: ConfigMap}")
    assert "without files" in empty.output


def test_the_configuration_of_nvidias_plugin_is_a_layout_and_what_is_lost_is_told(run: Run) -> None:
    result = run(node=NODES, layout=NVIDIA)
    as_json = run("--json", node=NODES, layout=NVIDIA)

    assert result.exit_code == 0, result.output
    assert "GPU 0  H100-80GB  GPU-n1-0  stays mig 1x 3g.40gb 4x 1g.10gb" in result.stdout
    assert "wanted  time-slicing 4x 1of4" in result.stdout
    assert "Not carried over: sharing.timeSlicing.renameByDefault" in result.stdout
    assert "Not carried over: flags failOnInitError" in result.stdout
    assert len(json.loads(as_json.stdout)[0]["notCarriedOver"]) == 2
