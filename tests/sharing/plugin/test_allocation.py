"""What Allocate answers, for every mode and strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharing.plugin.allocation import VOLUME_ROOT, ContainerAnswer, allocate
from sharing.plugin.binding import (
    ContainerEdits,
    EditSettings,
    Mount,
    ShareBinding,
    Visibility,
    container_edits,
)
from sharing.plugin.errors import AllocationError
from sharing.plugin.settings import AnswerSettings, Strategy
from tests.support.plugin_bindings import MIB, gpu_uuid, mig, mig_uuid, mps, slice_, whole

ONE_OF_EACH = [whole(0), slice_(1, 0), mps(2, 3), mig(3, 4)]


def answer_for(*bindings: ShareBinding, settings: AnswerSettings | None = None) -> ContainerAnswer:
    return allocate(
        bindings[0].resource,
        [one.device_id for one in bindings],
        {one.device_id: one for one in bindings},
        settings or AnswerSettings(),
    )


@pytest.mark.parametrize("binding", ONE_OF_EACH, ids=lambda one: one.mode.value)
@pytest.mark.parametrize("strategy", [Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS])
def test_a_cdi_answer_names_one_device_and_nothing_that_a_pods_env_could_override(
    binding: ShareBinding, strategy: Strategy
) -> None:
    answer = answer_for(binding, settings=AnswerSettings(strategy=strategy))
    name = f"gpu.sharing/share={binding.device_id}"
    named = answer.cdi_names or tuple(value for _, value in answer.annotations)
    assert named == (name,)
    assert answer.cdi is not None
    assert answer.cdi.qualified_name == name
    assert (answer.envs, answer.mounts, answer.device_files) == ((), (), ())


@pytest.mark.parametrize("binding", ONE_OF_EACH, ids=lambda one: one.mode.value)
def test_an_envvar_answer_carries_what_the_cdi_device_would(binding: ShareBinding) -> None:
    answer = answer_for(binding, settings=AnswerSettings(strategy=Strategy.ENVVAR))
    edits = container_edits([binding])
    assert answer.envs == edits.env
    assert answer.mounts == edits.mounts
    assert tuple(one.container_path for one in answer.device_files) == edits.device_nodes
    assert answer.cdi is None
    assert dict(answer.envs)["NVIDIA_VISIBLE_DEVICES"] == binding.visible


@pytest.mark.parametrize("binding", ONE_OF_EACH, ids=lambda one: one.mode.value)
def test_a_volume_mounts_answer_says_the_devices_by_mounts_that_pods_cannot_forge(
    binding: ShareBinding,
) -> None:
    answer = answer_for(binding, settings=AnswerSettings(strategy=Strategy.VOLUME_MOUNTS))
    assert dict(answer.envs)["NVIDIA_VISIBLE_DEVICES"] == VOLUME_ROOT
    marker = Mount(host_path="/dev/null", container_path=f"{VOLUME_ROOT}/{binding.visible}")
    assert marker in answer.mounts


def test_annotation_keys_differ_by_device_and_stay_within_a_keys_length() -> None:
    settings = AnswerSettings(strategy=Strategy.CDI_ANNOTATIONS)
    keys = {answer_for(one, settings=settings).annotations[0][0] for one in ONE_OF_EACH}
    assert len(keys) == 4
    assert all(key.startswith("cdi.k8s.io/") and len(key.split("/")[1]) <= 63 for key in keys)


def test_a_mig_share_shows_its_own_uuid_and_capability_files() -> None:
    edits = container_edits([mig(3, 4)])
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == mig_uuid(34)
    assert "/dev/nvidia-caps/nvidia-cap34" in edits.device_nodes


def test_an_mps_share_is_bound_by_directory_memory_and_threads() -> None:
    env = dict(container_edits([mps(2, 3)]).env)
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == f"/run/gpu-sharing/mps/{gpu_uuid(2)}/pipe"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={MIB // 4}M"
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    mounts = {one.container_path: one.host_path for one in container_edits([mps(2, 3)]).mounts}
    assert mounts["/dev/shm"] == f"/run/gpu-sharing/mps/{gpu_uuid(2)}/shm"
    assert mounts[env["CUDA_MPS_PIPE_DIRECTORY"]] == env["CUDA_MPS_PIPE_DIRECTORY"]


@pytest.mark.parametrize("binding", [whole(0), slice_(1, 0), mig(3, 4)], ids=lambda b: b.mode.value)
def test_only_mps_shares_get_mps_variables(binding: ShareBinding) -> None:
    assert not [name for name, _ in container_edits([binding]).env if "MPS" in name]


def test_user_code_can_read_its_share() -> None:
    env = dict(container_edits([mps(2, 3)]).env)
    assert {name: value for name, value in env.items() if name.startswith("GPU_SHARING_")} == {
        "GPU_SHARING_MODE": "mps",
        "GPU_SHARING_RESOURCE": "gpu.sharing/mps-1of4",
        "GPU_SHARING_MEMORY_MIB": str(MIB // 4),
        "GPU_SHARING_THREAD_PERCENTAGE": "25",
        "GPU_SHARING_SHARES": f"{gpu_uuid(2)}::3",
        "GPU_SHARING_DEVICES": gpu_uuid(2),
    }


def test_without_nvidias_runtime_our_edits_carry_the_driver_and_hold_the_runtime_off() -> None:
    driver = ContainerEdits(
        device_nodes=("/dev/nvidiactl",),
        mounts=(Mount(host_path="/lib/libcuda.so", container_path="/lib/libcuda.so"),),
    )
    edits = container_edits([whole(0)], EditSettings(visibility=Visibility.VOID, driver=driver))
    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert dict(edits.env)["GPU_SHARING_DEVICES"] == gpu_uuid(0)
    assert edits.device_nodes == ("/dev/nvidia0", "/dev/nvidiactl")
    assert driver.mounts[0] in edits.mounts


def test_a_containerised_drivers_files_lie_below_its_root_on_the_host_only() -> None:
    settings = AnswerSettings(
        strategy=Strategy.ENVVAR, edits=EditSettings(dev_root="/run/nvidia/driver/")
    )
    (file,) = answer_for(whole(0), settings=settings).device_files
    assert (file.host_path, file.container_path) == (
        "/run/nvidia/driver/dev/nvidia0",
        "/dev/nvidia0",
    )


def test_edits_do_not_depend_on_the_order_of_bindings() -> None:
    assert container_edits([whole(0), whole(1)]) == container_edits([whole(1), whole(0)])


def test_several_whole_gpus_are_one_answer() -> None:
    answer = answer_for(whole(1), whole(0))
    env = dict(answer.cdi.edits.env) if answer.cdi else {}
    assert len(answer.cdi_names) == 1
    assert env["NVIDIA_VISIBLE_DEVICES"] == f"{gpu_uuid(0)},{gpu_uuid(1)}"
    assert env["GPU_SHARING_MEMORY_MIB"] == str(2 * MIB)


@pytest.mark.parametrize("share", [slice_, mps, mig])
def test_more_than_one_share_in_a_container_is_refused(share: object) -> None:
    """NVIDIA/k8s-device-plugin#443, #929: the last line; admission has refused it before."""
    assert callable(share)
    with pytest.raises(AllocationError, match=r"2 shares at once.*larger size"):
        answer_for(share(0, 0), share(1, 0))


def test_one_id_named_twice_is_one_share() -> None:
    share = mps(0, 0)
    known = {share.device_id: share}
    answer = allocate(share.resource, [share.device_id] * 2, known, AnswerSettings())
    assert answer.bindings == (share,)


def test_an_unhealthy_share_is_answered_since_an_error_would_fail_the_pod_for_good() -> None:
    assert answer_for(replace(mps(0, 0), healthy=False)).cdi_names


@pytest.mark.parametrize("ids", [["GPU-x"], [gpu_uuid(0), "GPU-x"], ["\n" * 500], []])
def test_unknown_ids_are_refused_in_one_sentence(ids: list[str]) -> None:
    with pytest.raises(AllocationError, match="does not exist") as caught:
        allocate("nvidia.com/gpu", ids, {gpu_uuid(0): whole(0)}, AnswerSettings())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
