"""Programs are found wherever somebody may have them, and built where they are nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import golang, programs
from tests.cluster.golang import Module
from tests.cluster.needs import REQUIRE, SWITCH, Tier
from tests.cluster.pinning import module_text

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "etcd"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any of the programs; its cache."""
    for variable in ("GPU_SHARING_CLUSTER_BIN", "KUBEBUILDER_ASSETS", programs.VERSION_SWITCH):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("GPU_SHARING_CLUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(folder: Path, name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.mark.usefixtures("nowhere")
def test_a_program_that_is_nowhere_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(programs.ProgramMissingError, match=r"etcd is in none of .*: make cluster-"):
        programs.find(NAME)


@pytest.mark.usefixtures("nowhere")
def test_the_first_place_that_has_a_program_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = put(tmp_path / "path")
    assert programs.find(NAME) == on_path

    assets = put(tmp_path / "assets")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets.parent))
    assert programs.find(NAME) == assets

    named = put(tmp_path / "named")
    monkeypatch.setenv("GPU_SHARING_CLUSTER_BIN", str(named.parent))
    assert programs.find(NAME) == named


@pytest.mark.usefixtures("nowhere")
def test_a_nodes_program_from_a_distribution_is_not_taken(tmp_path: Path) -> None:
    """Its version and build flags matter: an old containerd knows no CDI."""
    put(tmp_path / "path", "containerd")

    with pytest.raises(programs.ProgramMissingError):
        programs.find("containerd")


def _module(folder: Path) -> Module:
    (folder / "go.mod").write_text("module nothing\n\ngo 1.24.0\n")
    (folder / "go.sum").write_text("")
    (folder / "cmd" / "nothing").mkdir(parents=True)
    (folder / "cmd" / "nothing" / "main.go").write_text("package main\n\nfunc main() {}\n")
    packages = {"nothing": "nothing/cmd/nothing"}
    return Module(name="nothing", path=folder, packages=packages, flags=())


def test_what_was_built_is_found_by_the_go_that_built_it_and_without_any(
    nowhere: Path, tmp_path: Path
) -> None:
    module = _module(tmp_path)
    older = put(nowhere / f"{module.key}go1.9.2", "nothing")
    newer = put(nowhere / f"{module.key}go1.26.8", "nothing")

    assert golang.kept(module, "nothing", go="") == newer
    assert golang.kept(module, "nothing", go="go1.9.2") == older
    assert golang.kept(module, "nothing", go="go1.27.0") is None


def test_another_sum_or_flag_is_another_program(tmp_path: Path) -> None:
    module = _module(tmp_path)
    key = module.key
    (tmp_path / "go.sum").write_text("example.com/x v1.0.0 h1:=\n")

    assert module.key != key


@pytest.mark.cluster(Tier.CONTROL_PLANE.value)
def test_a_build_says_how_far_it_is_and_is_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_SHARING_CLUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOME", raising=False)  # as in a bare container
    module = _module(tmp_path)
    if golang.go_program() is None:
        with pytest.raises(SystemExit, match=r"install it \(https://go.dev/dl\)"):
            golang.build([(module, ["nothing"])])
        return

    golang.build([(module, ["nothing"])])
    first = capsys.readouterr().err
    golang.build([(module, ["nothing"])])

    assert "1 of 1: building nothing" in first
    assert "built nothing in " in first
    assert capsys.readouterr().err == ""
    path = golang.kept(module, "nothing")
    assert path is not None
    assert subprocess.run([str(path)], check=False, timeout=10).returncode == 0
    assert [each.name for each in (tmp_path / "cache").glob("go-build-*")] == []


@pytest.mark.cluster(Tier.CONTROL_PLANE.value)
def test_a_build_that_fails_ends_with_the_words_of_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_SHARING_CLUSTER_CACHE", str(tmp_path / "cache"))
    module = _module(tmp_path)
    (tmp_path / "cmd" / "nothing" / "main.go").write_text("package main\n\nfunc main() { x }\n")

    with pytest.raises(SystemExit) as ended:
        golang.build([(module, ["nothing"])])

    has_go = golang.go_program() is not None
    assert ("undefined: x" if has_go else "install it") in str(ended.value)


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ('Get "https://proxy.example/x.zip": dial tcp 10.0.0.1:443: i/o timeout', True),
        ("reading https://proxy.example/x.mod: 502 Bad Gateway", True),
        ("main.go:3:15: undefined: x", False),
        ("verifying k8s.io/api@v0.37.2: checksum mismatch", False),
    ],
)
def test_only_a_failed_download_is_tried_again(line: str, network: bool) -> None:
    assert golang.is_the_network(["k8s.io/api/core/v1", line]) is network


# -- other versions of Kubernetes

UPSTREAM: Final = """\
module k8s.io/kubernetes

go 1.25.0

godebug default=go1.25

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/streaming => ./staging/src/k8s.io/streaming
)
"""


def test_a_versions_module_pins_the_staging_modules_that_were_published_with_it() -> None:
    text = module_text("1.35.4", UPSTREAM)

    assert "require k8s.io/kubernetes v1.35.4\n" in text
    assert "\tk8s.io/api => k8s.io/api v0.35.4\n" in text
    assert "\tk8s.io/streaming => k8s.io/streaming v0.35.4\n" in text
    assert text.index("go 1.25.0") < text.index("godebug default=go1.25")
    assert "tool k8s.io/kubernetes/cmd/kube-apiserver" in text


def test_each_version_is_pinned_to_one_release_of_its_own() -> None:
    assert programs.versions().keys() == {"1.34", "1.35", "1.36"}
    for version, module in programs.versions().items():
        text = (module.path / "go.mod").read_text("utf-8")

        assert f"k8s.io/kubernetes v{version}." in text
        assert any(f"gitVersion=v{version}." in flag for flag in module.flags)


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_the_pages_name_the_versions_that_are_pinned(page: str) -> None:
    folders = [programs.TOOLS / "kubernetes", *(m.path for m in programs.versions().values())]
    text = (ROOT / page).read_text("utf-8")

    for folder in folders:
        found = re.search(r"k8s\.io/kubernetes v(\S+)", (folder / "go.mod").read_text("utf-8"))
        assert found is not None
        assert found[1] in text


@pytest.mark.usefixtures("nowhere")
def test_a_version_that_was_asked_for_is_looked_for_in_the_cache_alone(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(programs.VERSION_SWITCH, "1.35")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(put(tmp_path, "kube-apiserver").parent))

    with pytest.raises(programs.ProgramMissingError, match=r"programs --kubernetes 1\.35"):
        programs.find("kube-apiserver")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kubernetes", "1.12"], "there is no module for Kubernetes '1.12'; there are 1.34, 1."),
        (["kubelett"], "kubelett: expected some of bridge, containerd"),
    ],
)
def test_what_cannot_be_built_is_refused_with_what_can(words: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.programs", *words],
        check=False, capture_output=True, text=True, cwd=ROOT, timeout=60,
        env={key: value for key, value in os.environ.items() if key not in (SWITCH, REQUIRE)},
    )  # fmt: skip

    assert done.returncode != 0
    assert says in " ".join(done.stderr.split())
