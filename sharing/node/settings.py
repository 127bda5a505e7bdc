"""What an agent is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sharing.mps.program import MpsVersion
from sharing.node.excess import ExcessPolicy
from sharing.node.health import HealthPolicy
from sharing.node.retreat import RetreatPolicy
from sharing.plugin.settings import AnswerSettings

KUBELET_DIR: Final = Path("/var/lib/kubelet")
STATE_DIR: Final = Path("/var/lib/gpu-sharing")
MPS_DIR: Final = Path("/run/gpu-sharing/mps")
CDI_DIR: Final = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """How often the agent looks by itself, and how patient it is; seconds."""

    observe_s: float = 60.0
    """Between two looks at GPUs that no event asked for: changes behind our back."""
    holders_s: float = 10.0
    """Between two questions to the kubelet while shares are held."""
    blocked_s: float = 1.0
    """Between two looks while a plan waits for a pod or a process."""
    probe_s: float = 5.0
    """Between two probes of a GPU that is ill."""
    withdrawal_s: float = 10.0
    """For the kubelet to agree with a withdrawal; the plan is made again after that."""
    admission_s: float = 0.25
    """From the kubelet's agreement until every assignment that it made before is listed."""
    mps_ready_s: float = 10.0
    """For an MPS daemon to answer and to show its limits."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 60.0
    """Between two tries of a step that the driver refuses."""
    event_wait_s: float = 1.0
    """For one wait for the driver's events, which cannot be interrupted: how long closing takes."""
    file_s: float = 2.0
    """Between two looks at a layout file."""
    api_wait_s: float = 2.0
    """For the API server at start; the last wanted state serves after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """One agent."""

    node: str
    """The Node's name; the GPUNode has the same."""
    kubelet_dir: Path = KUBELET_DIR
    cdi_dir: Path | None = CDI_DIR
    """None where no container runtime reads CDI files."""
    state_dir: Path = STATE_DIR
    """Must outlive reboots."""
    mps_dir: Path = MPS_DIR
    """Pipes and logs of MPS daemons; the same path on the host and in the agent."""
    simulate: Path | None = None
    """State file of simulated GPUs; the real driver if None."""
    layout_file: Path | None = None
    """Layout entries to apply where there is no API server; see ``layoutfile``."""
    mps_version: MpsVersion = MpsVersion.V2
    """What new MPS daemons speak; v3 needs driver 615 or later."""
    leave_mps_running: bool = True
    """Whether MPS daemons outlive the agent, as pods need; False where their pods end with it."""
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    mig_config: str | None = None
    """Which configuration of ``layout_file``, where that is mig-parted's."""
    mig_configs: Path | None = None
    """mig-parted's file; the Node's label ``nvidia.com/mig.config`` chooses from it then."""
    health: HealthPolicy = field(default_factory=HealthPolicy)
    excess: ExcessPolicy = field(default_factory=ExcessPolicy)
    enforce_memory: bool = False
    """Whether the driver shall keep time-sliced pods within their shares, where it can."""
    metrics_by_share: bool = True
    """Whether metrics have series that name shares and pods."""
    retreat: RetreatPolicy = field(default_factory=RetreatPolicy)
    tempo: Tempo = field(default_factory=Tempo)

    @property
    def plugin_dir(self) -> Path:
        """The kubelet's folder of device-plugin sockets."""
        return self.kubelet_dir / "device-plugins"

    @property
    def pod_resources_dir(self) -> Path:
        """The kubelet's folder of the PodResources socket."""
        return self.kubelet_dir / "pod-resources"
