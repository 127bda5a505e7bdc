"""The inventory file: what a person writes about nodes becomes offers, or one sentence."""

from __future__ import annotations

import pytest

from sharing.documents import read_documents
from sharing.errors import InputError
from sharing.inventory import Inventory
from sharing.nodefile import read_nodes

MIXED = """
- name: n1
  gpus: 8xH100-80GB
  labels: {pool: mixed}
  layout:
  - {gpus: "0-1", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}
  - {gpus: 2, mode: time-slicing, sizes: {1of4: 4}, pool: team-a}
  - {gpus: "3-5", mode: mps, sizes: {1of2: 1, 1of4: 2}}
  - {gpus: rest, mode: exclusive}
"""


def nodes_of(text: str) -> Inventory:
    return read_nodes(read_documents(text.encode(), "nodes.yaml"))


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        nodes_of(text)
    return str(caught.value)


def test_each_gpu_offers_what_its_layout_yields() -> None:
    inventory = nodes_of(MIXED)

    offers = {
        str(name): (offer.count, offer.memory_mib, offer.milli)
        for name, offer in inventory.offers().items()
    }
    assert offers == {
        "nvidia.com/gpu": (2, 81559, 1000),
        "nvidia.com/mig-1g.10gb": (8, offers["nvidia.com/mig-1g.10gb"][1], 143),
        "nvidia.com/mig-3g.40gb": (2, offers["nvidia.com/mig-3g.40gb"][1], 496),
        "gpu.sharing/mps-1of2": (3, 40779, 500),
        "gpu.sharing/mps-1of4": (6, 20389, 250),
        "team-a.gpu.sharing/timeslice-1of4": (4, 20389, 250),
    }
    assert 9_000 < offers["nvidia.com/mig-1g.10gb"][1] < 10_241
    assert 38_000 < offers["nvidia.com/mig-3g.40gb"][1] < 40_961
    assert inventory.nodes[0].labels == {"pool": "mixed"}


def test_a_node_without_a_layout_is_exclusive_and_lists_of_boards_add_up() -> None:
    inventory = nodes_of("- {name: n1, gpus: [H100-80GB, A100-40GB]}\n- {name: n2, gpus: T4-16GB}")

    assert [(node.name, node.offers[0].count) for node in inventory.nodes] == [("n1", 2), ("n2", 1)]


def test_objects_of_a_cluster_are_an_inventory_too() -> None:
    inventory = nodes_of(
        """
apiVersion: v1
kind: List
items:
- apiVersion: gpu.sharing/v1alpha1
  kind: GPUNode
  metadata: {name: n1}
  status:
    newerField: 1
    gpus:
    - {index: 0, uuid: GPU-1, board: T4-16GB, product: Tesla T4, memoryMiB: 15360, shares: [
       {id: "GPU-1::0", resource: gpu.sharing/mps-1of2, memoryMiB: 7680, milli: 500}]}
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {pool: a}}
  spec: {unschedulable: true}
  status: {conditions: [{type: Ready, status: "True"}]}
"""
    )

    (node,) = inventory.nodes
    assert (node.labels, node.ready) == ({"pool": "a"}, False)
    assert [(str(o.share_class), o.count) for o in node.offers] == [("gpu.sharing/mps-1of2", 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 3", "nodes.yaml, document 1 (line 1), [0]: 3 is no node"),
        ("- {name: n1}", "node 'n1': field gpus is missing"),
        ("- {name: n1, gpus: 2xH101}", "'H101' is not in the catalogue"),
        ("- {name: n1, gpus: 2xH101}", "for example: "),
        ("- {name: n1, gpus: 999xT4-16GB}", "expected 1 to 64"),
        ("- {name: n1, gpus: {}}", "field gpus"),
        ("- {name: N_1, gpus: T4-16GB}", "'N_1' is no node name"),
        ("- {name: [], gpus: T4-16GB}", "field name"),
        ("- {name: n1, gpus: T4-16GB, lables: {}}", "unknown field lables"),
        ("- {name: n1, gpus: T4-16GB, labels: {a: 1}}", "field labels.a"),
        ("- {name: n1, gpus: T4-16GB}\n- {name: n1, gpus: T4-16GB}", "'n1' is there twice"),
        (
            "- {name: n1, gpus: T4-16GB, layout: [{gpus: all, mode: mig, sizes: {1g.10gb: 1}}]}",
            "has no MIG",
        ),
        (
            "- {name: n1, gpus: H100-80GB, layout: [{gpus: 0, mode: mig, sizes: {1g.10gb: 8}}]}",
            "cannot hold",
        ),
        (
            "- {name: n1, gpus: T4-16GB, layout: [{gpus: x, mode: exclusive}]}",
            "field layout[0]: 'x' selects no GPUs",
        ),
        (
            "- {name: n1, gpus: T4-16GB, layout: [{gpus: 0, mode: mps, sizes: {1of2: 3}}]}",
            "its sizes sum to 3/2 of a GPU",
        ),
        ("kind: Pod\nmetadata: {name: x}", "kind 'Pod' describes no node"),
        ("kind: GPUNode", "it has no metadata.name"),
        ("kind: GPUNode\nmetadata: {name: x}\nstatus: {gpus: [{index: 0}]}", "is missing"),
        ("nonsense", "'nonsense' is no node"),
        ("kind: NodeList\nitems: 3", "3 is no node"),
    ],
)
def test_a_mistake_names_file_node_and_field(text: str, says: str) -> None:
    message = refusal(text)

    assert says in message
    assert message.startswith("nodes.yaml, document 1")


def test_a_cluster_without_gpus_is_an_empty_inventory() -> None:
    assert nodes_of("# nothing").nodes == ()
    assert nodes_of("nodes: []").nodes == ()
