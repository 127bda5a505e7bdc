"""A node's wanted layout from a file, for a node without an API server.

    - {gpus: "0-1", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}
    - {gpus: rest, mode: mps, sizes: {1of4: 4}}

A GPULayout manifest does as well, mig-parted's ``mig-configs`` file with a configuration's name,
the configuration file of NVIDIA's device plugin, and a ConfigMap with such files, as the GPU
Operator has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharing.api.layout import GpuLayoutSpec
from sharing.api.model import parse_model
from sharing.documents import Document, read_documents, read_file
from sharing.errors import InputError, shown
from sharing.layout import LayoutEntry
from sharing.migparted import MigConfigs, is_mig_configs, read_mig_configs
from sharing.node.observed import GpuState
from sharing.node.wanted import Wanted, WantedLayout
from sharing.nvidiaconfig import NodeGpu, NvidiaConfig, is_nvidia_config, read_nvidia_config

_EXAMPLE: Final = "- {gpus: rest, mode: mps, sizes: {1of4: 4}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """What a file says about any node's GPUs: entries, or what another program reads."""

    entries: tuple[LayoutEntry, ...] = ()
    configs: MigConfigs | None = None
    config: str = ""
    nvidia: NvidiaConfig | None = None

    def wanted(self, gpus: Sequence[GpuState]) -> Wanted:
        """What these GPUs shall be.

        Raises:
            InputError: The configuration names a GPU for MIG that has none.
        """
        if self.configs is not None:
            return by_mig_config(self.configs, self.config, gpus)
        if self.nvidia is not None:
            return _by_nvidia_config(self.nvidia, gpus)
        return Wanted.from_entries(self.entries, gpus)

    def notes(self, gpus: Sequence[GpuState]) -> tuple[str, ...]:
        """What could not be carried over from another program's file; a sentence each."""
        if self.nvidia is None:
            return ()
        return self.nvidia.translate(_node_gpus(gpus)).notes


def _by_nvidia_config(config: NvidiaConfig, gpus: Sequence[GpuState]) -> Wanted:
    pairs = {gpu.uuid: layout for gpu, layout in config.translate(_node_gpus(gpus)).layouts}
    return Wanted(
        {gpu.uuid: WantedLayout(layout=pairs.get(gpu.uuid) or gpu.as_found()) for gpu in gpus}
    )


def _node_gpus(gpus: Sequence[GpuState]) -> tuple[NodeGpu, ...]:
    return tuple(NodeGpu(identity=gpu.identity, in_mig_mode=gpu.mig_enabled) for gpu in gpus)


def by_mig_config(configs: MigConfigs, config: str, gpus: Sequence[GpuState]) -> Wanted:
    """What a configuration of mig-parted's says about GPUs; see ``MigConfigs.layouts``."""
    pairs = configs.layouts(config, [(gpu.identity, gpu.board) for gpu in gpus])
    return Wanted({gpu.uuid: WantedLayout(layout=layout) for gpu, layout in pairs})


def read_layout(path: Path, mig_config: str | None = None) -> LayoutFile:
    """What a layout file says.

    Args:
        path: The file.
        mig_config: The configuration, in a file of mig-parted's or a ConfigMap; its only one if
            None.

    Raises:
        InputError: It cannot be read, or is none of these forms.
    """
    value = _only(read_file(path), str(path))
    if isinstance(value, Mapping) and value.get("kind") == "ConfigMap":
        return _of_config_map(value.get("data"), str(path), mig_config)
    return _layout_of(value, str(path), mig_config)


def _only(documents: Sequence[Document], where: str) -> object:
    if len(documents) != 1:
        raise InputError(
            where, f"holds {len(documents)} documents", expected="one", example=_EXAMPLE
        )
    return documents[0].value


def _of_config_map(data: object, where: str, name: str | None) -> LayoutFile:
    """The file that a ConfigMap holds; of several the one of that name."""
    files = data if isinstance(data, Mapping) else {}
    if len(files) == 1:
        (key,) = files
    elif name in files:
        key, name = name, None
    else:
        raise InputError(
            where,
            "is a ConfigMap without files" if not files else f"{shown(name)} is none of its files",
            expected=f"one of {', '.join(sorted(map(str, files)))}" if files else "one or several",
            fix="name one",
            example=f"--mig-config {min(map(str, files), default='any')}",
        )
    inside = f"{where}, data.{key}"
    value = _only(read_documents(str(files[key]).encode(), inside), inside)
    return _layout_of(value, inside, name)


def _layout_of(value: object, where: str, mig_config: str | None) -> LayoutFile:
    if is_mig_configs(value):
        configs = read_mig_configs(value, where)
        return LayoutFile(configs=configs, config=configs.chosen(mig_config))
    if mig_config is not None:
        raise InputError(
            where,
            "has no mig-configs, so no configuration can be chosen from it",
            fix="leave --mig-config out",
        )
    if is_nvidia_config(value):
        return LayoutFile(nvidia=read_nvidia_config(value, where))
    if isinstance(value, Mapping) and value.get("kind") == "GPULayout":
        spec = value.get("spec")
        return LayoutFile(entries=parse_model(GpuLayoutSpec, spec, f"{where}, spec").entries())
    entries = value.get("gpus") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        raise InputError(
            where,
            f"{shown(value)} is no layout",
            expected="a list of layout entries, a GPULayout manifest, mig-parted's mig-configs or "
            "the configuration of NVIDIA's device plugin",
            example=_EXAMPLE,
        )
    return LayoutFile(entries=parse_model(GpuLayoutSpec, {"gpus": entries}, where).entries())


def read_mig_config_file(path: Path) -> MigConfigs:
    """The configurations of mig-parted's file.

    Raises:
        InputError: It cannot be read, or is no such file.
    """
    documents = read_file(path)
    if len(documents) != 1:
        raise InputError(str(path), f"holds {len(documents)} documents", expected="one")
    return read_mig_configs(documents[0].value, str(path))
