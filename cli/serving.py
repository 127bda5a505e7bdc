"""The options of ``gpu-sharing agent`` about what containers get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import click

if TYPE_CHECKING:
    from sharing.plugin.settings import AnswerSettings

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_TOOLKIT: Final = "/etc/nvidia-container-runtime/config.toml"
_Command = TypeVar("_Command", bound=Callable[..., Any])


_OPTIONS: Final = (
    click.option(
        "--device-list-strategy",
        type=click.Choice(["cdi-cri", "cdi-annotations", "volume-mounts", "envvar"]),
        default="cdi-cri",
        show_default=True,
        envvar="DEVICE_LIST_STRATEGY",
        help="How a container runtime hears which devices a container gets.",
    ),
    click.option(
        "--trust-pod-environment",
        is_flag=True,
        help="Use a strategy that pods could get round by variables of their own: the webhook "
        "sees them all.",
    ),
    click.option(
        "--toolkit-config",
        type=_FILE,
        default=_TOOLKIT,
        metavar="FILE",
        show_default=True,
        help="NVIDIA's container toolkit, looked at with volume-mounts.",
    ),
    click.option(
        "--dev-root",
        type=_FOLDER,
        default="/",
        metavar="DIR",
        envvar="NVIDIA_DEV_ROOT",
        help="Where device files lie on the host, if the driver is in a container.  [default: /]",
    ),
    click.option(
        "--driver-cdi-spec",
        type=_FILE,
        metavar="FILE",
        help="Spec of `nvidia-ctk cdi generate`: its libraries and hooks go into ours, for "
        "runtimes without NVIDIA's own.",
    ),
    click.option(
        "--share-placement",
        type=click.Choice(["pack", "spread"]),
        default="pack",
        show_default=True,
        help="The next share comes from the fullest GPU, or from the emptiest.",
    ),
    click.option(
        "--mps-protocol",
        type=click.Choice(["2", "3"]),
        default="2",
        show_default=True,
        help="What new MPS daemons speak; 3 holds each size to its limits and needs driver "
        "615 or later.",
    ),
)


class Serving(TypedDict):
    """The options by name."""

    device_list_strategy: str
    trust_pod_environment: bool
    toolkit_config: Path
    dev_root: Path
    driver_cdi_spec: Path | None
    share_placement: str
    mps_protocol: str


def serving_options(command: _Command) -> _Command:
    """Give a command these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def answers_of(chosen: Serving, *, simulated: bool, simulated_files: bool) -> AnswerSettings:
    """How the agent answers the kubelet.

    Args:
        chosen: The options.
        simulated: Whether the GPUs are; then no runtime of NVIDIA's is asked.
        simulated_files: Whether containers get files of such GPUs.

    Raises:
        PluginError: Pods could choose GPUs, or the driver's spec is none.
    """
    from sharing.plugin import driverspec, trust
    from sharing.plugin.binding import ContainerEdits, EditSettings, Visibility
    from sharing.plugin.settings import AnswerSettings, Packing, Strategy

    strategy = Strategy(chosen["device_list_strategy"])
    if not chosen["trust_pod_environment"] and not simulated:
        config = chosen["toolkit_config"]
        if (error := trust.refusal(strategy, _text(config), config)) is not None:
            raise error
    spec = chosen["driver_cdi_spec"]
    return AnswerSettings(
        strategy=strategy,
        packing=Packing(chosen["share_placement"]),
        edits=EditSettings(
            visibility=Visibility.UUID if spec is None else Visibility.VOID,
            dev_root=str(chosen["dev_root"]),
            simulated=simulated_files,
            driver=ContainerEdits() if spec is None else driverspec.read(spec),
        ),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
