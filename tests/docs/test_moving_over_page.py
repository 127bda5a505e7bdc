"""The page on moving over: each of its pods becomes what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sharing.api.choices import System
from sharing.api.profile import parse_profile
from sharing.documents import read_documents
from sharing.nodefile import read_nodes
from webhook.admission import admit_pod
from webhook.foreign import WORDS
from webhook.policies import Policies

PAGE = (Path(__file__).parents[2] / "docs" / "moving-over.md").read_text("utf-8")
FILES = dict(
    re.findall(r"^<!-- file: (\S+) -->\n```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
PODS = [name for name in FILES if name not in ("moving.yaml", "nodes.yaml")]
PROFILE, NAMESPACE = yaml.safe_load_all(FILES["moving.yaml"])


@pytest.mark.parametrize("name", PODS)
def test_a_pod_of_the_page_becomes_what_the_page_says(name: str) -> None:
    known = Policies(
        namespaces={"team-a": NAMESPACE["metadata"]["labels"]},
        profiles={"moving": parse_profile(PROFILE)},
    )
    nodes = read_nodes(read_documents(FILES["nodes.yaml"].encode(), "nodes.yaml"))
    manifest: Any = yaml.safe_load(FILES[name])
    verdict = admit_pod(manifest, "team-a", known, nodes)
    said = re.findall(r"# becomes (\S+)$", FILES[name], re.MULTILINE)
    assert [grant.resource for grant in verdict.grants] == said, verdict.message


def test_the_page_names_every_system_and_every_word() -> None:
    words = [name for one in WORDS.values() for name in one.names | set(one.schedulers)]
    short = [name.rpartition("/")[2] for name in words if name != "nos-scheduler"]
    assert [name for name in [*System, *short] if name not in PAGE] == []
