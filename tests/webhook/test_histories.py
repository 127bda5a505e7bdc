"""A pod's way past us and other webhooks, again and again: what was given stays given."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sharing.api.choices import System
from tests.support.judging import H100S, apply, inventory, policies, profile
from tests.support.pods import ASKING_PODS
from webhook.admission import admit_pod
from webhook.grant import Grant

PROFILES = [
    profile("h-mps", mode="mps", accounting=True, hideGPUs=True),
    profile("h-fall", modes=["mig", "mps", "exclusive"], allowedModes=[], multiGPU="exclusive"),
    profile(
        "h-placed", mode="mps", nodeSelector={"pool": "a"}, schedulerName="gang",
        onUnsatisfiable="admit", memory={"default": "10Gi"},
    ),
    profile(
        "h-moving", modes=["mps", "exclusive"], multiGPU="exclusive",
        compatibility=[one for one in System if one is not System.ALIYUN_MIB],
    ),
]  # fmt: skip
KNOWN = policies(*PROFILES)
NODES = [H100S, inventory(("gpu.sharing/mps-1of2", 40779, 500), ("nvidia.com/gpu", 81559, 1000))]


class Passing(RuleBasedStateMachine):
    """One pod on its way; other webhooks and the API server's defaults come in between."""

    def __init__(self) -> None:
        super().__init__()
        self.pod: dict[str, Any] = {}
        self.given: tuple[Grant, ...] = ()
        self.added = 0

    @initialize(pod=ASKING_PODS, governed=st.sampled_from(PROFILES), nodes=st.sampled_from(NODES))
    def start(self, pod: Any, governed: Any, nodes: Any) -> None:
        self.pod, self.governed, self.nodes = pod, governed, nodes
        self.go_past()

    def go_past(self) -> None:
        """Ask for a verdict, apply it, and ask again at once."""
        verdict = admit_pod(self.pod, self.governed.name, KNOWN, self.nodes)
        if not verdict.allowed:
            assert not self.given, verdict.message
            return
        self.pod = apply(verdict, self.pod)
        if self.given:
            assert verdict.grants == self.given
        self.given = verdict.grants
        again = admit_pod(self.pod, self.governed.name, KNOWN, self.nodes)
        assert (again.operations, again.grants) == ((), verdict.grants)

    @rule(front=st.booleans(), init=st.booleans())
    def another_webhook_adds_a_container(self, front: bool, init: bool) -> None:
        """HAMi#654, kserve#4332, amazon-eks-pod-identity-webhook#61."""
        self.added += 1
        made = {"name": f"proxy-{self.added}", "image": "proxy:1"}
        listed = self.pod["spec"].setdefault("initContainers" if init else "containers", [])
        listed.insert(0 if front else len(listed), made)
        self.go_past()

    @rule(index=st.integers(0, 5))
    def another_webhook_adds_a_variable(self, index: int) -> None:
        listed = self.pod["spec"]["containers"]
        chosen = listed[index % len(listed)]
        chosen["env"] = [{"name": "PROXY", "value": "x"}, *(chosen.get("env") or [])]
        self.go_past()

    @rule()
    def the_api_server_defaults_requests(self) -> None:
        spec = self.pod["spec"]
        for one in spec["containers"] + (spec.get("initContainers") or []):
            resources = one.get("resources") or {}
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        self.go_past()

    @rule(key=st.sampled_from(["sidecar.istio.io/status", "a/b~c"]))
    def another_webhook_annotates(self, key: str) -> None:
        self.pod["metadata"].setdefault("annotations", {})[key] = "x"
        self.go_past()


Passing.TestCase.settings = settings(max_examples=25, stateful_step_count=6, deadline=None)
TestPassing = Passing.TestCase
