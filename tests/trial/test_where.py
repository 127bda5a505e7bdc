"""From options to a real cluster: the kubeconfig of a context, nodes with and without folders."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cli.trial.scenario import NodeSpec
from cli.trial.where import Where, at_context, ground_for
from sharing.errors import InputError

CONFIG = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {}}, {"name": "two", "context": {}}],
    "clusters": [{"name": "c", "cluster": {"certificate-authority": "ca.crt"}}],
    "users": [{"name": "u", "user": {"client-key": "/abs/key", "token": "ca.crt"}}],
}


def test_another_context_is_a_private_copy_with_files_found_from_anywhere(tmp_path: Path) -> None:
    original = tmp_path / "home" / "config"
    original.parent.mkdir()
    original.write_text(yaml.safe_dump(CONFIG))

    copy = at_context(original, "two", tmp_path)

    assert copy is not None
    made = yaml.safe_load(copy.read_text())
    assert made["current-context"] == "two"
    assert made["clusters"][0]["cluster"]["certificate-authority"] == f"{original.parent}/ca.crt"
    assert made["users"][0]["user"] == {"client-key": "/abs/key", "token": "ca.crt"}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert at_context(original, "", tmp_path) == original


def test_an_unknown_context_is_refused_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(CONFIG))

    with pytest.raises(InputError, match="has no context 'three'; expected one, two"):
        at_context(path, "three", tmp_path)


def test_a_node_without_folders_is_somebody_elses(tmp_path: Path) -> None:
    where = Where(
        kubeconfig=tmp_path / "config", context="", nodes=("w1", "w2=/k,/c"), image=None,
        listen="[::1]:9443", webhook_url="https://10.0.0.1:9443/mutate", identities=("agent=a",),
    )  # fmt: skip
    specs = [NodeSpec(name=name, gpus="1xT4-16GB") for name in ("a", "b")]

    ground = ground_for(where, tmp_path, specs)

    assert [(p.name, p.kubelet, p.cdi, p.gpus.name) for p in ground.places] == [
        ("w1", None, None, "a.json"),
        ("w2", Path("/k"), Path("/c"), "b.json"),
    ]
    assert ground.listen == ("::1", 9443)
    assert ground.url("https://localhost:1/mutate") == "https://10.0.0.1:9443/mutate"
    assert ground.kubeconfig("agent") == Path("a").absolute()
    assert ground.kubeconfig("webhook") == tmp_path / "config"
