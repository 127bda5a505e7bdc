"""Which pod and container a process belongs to: every spelling, and names that tenants choose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.node.cgroup import Place, from_the_root, known_place, places_of
from sharing.node.processes import ByProc

UID = "3f2b8c1e-7a44-4d0e-9c55-0f1e2d3c4b5a"
OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
ID = "0123456789abcdef" * 4
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


def only(text: str) -> Place:
    (place,) = places_of(text)
    return place


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/docker-{ID}.scope",
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubelet/kubepods/besteffort/pod{UID}/{ID}",
        f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}",
        f"/{SLICE}:cri-containerd:{ID}",
        f"/../../{SLICE}/cri-containerd-{ID}.scope",
        f"/../../../kubepods-besteffort.slice/{SLICE}/cri-containerd-{ID}.scope",
        f"/../../pod{UID}/{ID}",
        f"/../../../besteffort/pod{UID}/{ID}",
        f"/kubelet.slice/kubelet-kubepods.slice/{SLICE}/cri-containerd-{ID}.scope/init.scope",
    ],
)
def test_every_spelling_of_drivers_and_runtimes_is_read(path: str) -> None:
    place = only(f"0::{path}\n")

    assert (place.pod_uid, place.container_id) == (UID, ID)
    assert path.startswith(place.path)
    assert ID in place.path


def test_in_version_1_the_hierarchies_are_asked_in_one_order() -> None:
    text = (
        "12:pids:/kubepods/burstable/pod" + UID + "/" + ID + "\n"
        "11:cpu,cpuacct:/kubepods/burstable/pod" + OTHER + "/" + ID + "\n"
        "1:name=systemd:/system.slice/containerd.service\n"
        "0::/system.slice/containerd.service\n"
    )

    assert only(text).pod_uid == UID


def test_a_process_of_the_node_lies_in_no_pod() -> None:
    for path in ("/", "/init.scope", "/system.slice/dcgm.service", "/user.slice/pod12345678"):
        assert places_of(f"0::{path}\n") == ()


def test_the_sandbox_and_what_lies_beside_containers_is_the_pods() -> None:
    assert only(f"0::/kubepods.slice/{SLICE}\n") == Place(
        pod_uid=UID, path=f"/kubepods.slice/{SLICE}"
    )
    assert only(f"0::/kubepods/pod{UID}/crio-conmon-{ID}\n").container_id == ""


def test_the_static_pods_of_a_node_have_a_digest_for_a_uid() -> None:
    digest = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    assert only(f"0::/kubepods/burstable/pod{digest}/{ID}").pod_uid == digest


def test_a_container_that_names_its_own_children_after_another_pod_stays_itself() -> None:
    mine = f"/kubepods.slice/{SLICE}/cri-containerd-{ID}.scope"
    theirs = f"kubepods-pod{OTHER.replace('-', '_')}.slice/cri-containerd-{'f' * 64}.scope"

    places = places_of(f"0::{mine}/{theirs}\n")
    assert [place.pod_uid for place in places] == [UID, OTHER]
    found = known_place(places, {UID, OTHER})
    assert found is not None
    assert (found.pod_uid, found.container_id) == (UID, ID)


def test_a_node_that_is_itself_a_container_of_another_cluster_is_looked_into() -> None:
    outer = f"/kubepods.slice/kubepods-pod{OTHER.replace('-', '_')}.slice/crio-{'e' * 64}.scope"

    found = known_place(places_of(f"0::{outer}/kubepods/pod{UID}/{ID}"), {UID})
    assert found is not None
    assert found.container_id == ID


@pytest.mark.parametrize("path", [f"/pod{UID}/{ID}", f"/../../x/pod{UID}/{ID}"])
def test_a_folder_that_is_merely_called_like_a_pod_is_none(path: str) -> None:
    assert places_of(f"0::{path}") == ()


@pytest.mark.parametrize(
    ("seen", "absolute"),
    [
        (f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{UID}/{ID}"),
        (
            f"/../../{SLICE}/crio-{ID}.scope",
            f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope",
        ),
        (
            f"/../../../kubepods-pod{OTHER}.slice/crio-{ID}.scope",
            f"/kubepods.slice/kubepods-pod{OTHER}.slice/crio-{ID}.scope",
        ),
        (f"/../../pod{UID}/{ID}", ""),
    ],
)
def test_a_path_of_a_namespace_is_told_from_the_root_where_its_slices_say_it(
    seen: str, absolute: str
) -> None:
    assert from_the_root(seen) == absolute


def test_an_unknown_pod_is_no_place() -> None:
    assert known_place(places_of(f"0::/kubepods/pod{UID}/{ID}"), {OTHER}) is None


@given(st.text(max_size=400))
def test_nonsense_is_nobody(text: str) -> None:
    assert all(place.pod_uid in text.replace("_", "-") for place in places_of(text))


@given(
    st.lists(
        st.sampled_from(
            [
                "0::",
                ":",
                "/",
                "kubepods",
                SLICE,
                "pod" + UID,
                ID,
                "crio-",
                ".scope",
                "\n",
                "..",
                "é",
            ]
        ),
        max_size=30,
    )
)
def test_pieces_in_any_order_break_nothing(pieces: list[str]) -> None:
    for place in places_of("".join(pieces)):
        assert place.pod_uid == UID
        assert place.container_id in ("", ID)


def test_the_kernels_files_are_read_and_processes_that_ended_are_left_out(tmp_path: Path) -> None:
    for pid, text in (("7", f"0::/kubepods/pod{UID}/{ID}\n"), ("8", "0::/init.scope\n")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)

    found = ByProc(tmp_path).of(frozenset({7, 8, 9}))
    assert found[8] == ()
    assert [place.pod_uid for place in found[7]] == [UID]
    assert 9 not in found


def test_this_very_process_is_found() -> None:
    assert os.getpid() in ByProc().of(frozenset({os.getpid()}))
