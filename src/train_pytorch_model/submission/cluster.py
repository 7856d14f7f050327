"""The compute cluster: the nodes requested, the cluster that exists, and conflicts between the two."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from train_pytorch_model.words.errors import out_of_range
from train_pytorch_model.words.wording import parameter

DEFAULT_VM_SIZE = "Standard_NC4as_T4_v3"  # the cheapest size with a whole GPU
AMLCOMPUTE = "amlcompute"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
SERVERLESS = "serverless"  # nodes that Azure ML provides for a job, without a cluster


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes that a job requests, and the cluster to create if it does not exist."""

    cluster: str
    """Its name, or `SERVERLESS`."""
    instance_count: int = 1
    process_count: int = 1
    """Processes per node. With 1, the program starts one for each GPU."""
    vm_size: str | None = None
    max_nodes: int | None = None
    low_priority: bool = False
    """Of a new cluster or of serverless nodes: cheaper, and Azure may take them away."""

    @property
    def is_serverless(self) -> bool:
        return self.cluster == SERVERLESS

    @property
    def new_vm_size(self) -> str:
        """The VM size of a cluster to create, or of serverless nodes."""
        return self.vm_size or DEFAULT_VM_SIZE

    @property
    def new_max_nodes(self) -> int:
        """The maximum number of nodes of a cluster to create."""
        return self.instance_count if self.max_nodes is None else self.max_nodes

    def problems(self) -> Iterator[str]:
        """Yield the problems that can be found without asking Azure."""
        if not _NAME.fullmatch(self.cluster) or self.cluster.lower() == "local":
            yield (
                f"{parameter('compute')} {self.cluster!r} is not a cluster name: expected a letter, then"
                f" letters, digits and hyphens, and not local; or {SERVERLESS}."
            )
        yield from _below_one("Node count", "instance_count", self.instance_count)
        yield from _below_one("Process count per node", "process_count_per_instance", self.process_count)
        if self.max_nodes is not None:
            yield from _below_one("Maximum number of nodes", "max_nodes", self.max_nodes)
            if self.is_serverless:
                yield f"{parameter('max_nodes')} is for a new cluster, and {SERVERLESS} compute has none."
            elif 0 < self.max_nodes < self.instance_count:
                yield (
                    f"Node count should be at most the cluster's maximum: {parameter('instance_count')} is"
                    f" {self.instance_count}, {parameter('max_nodes')} {self.max_nodes}."
                )

    def too_many_processes(self, vm_size: str, gpus: int) -> Iterator[str]:
        """Yield a problem if processes would share a GPU, which makes NCCL fail, or a node without GPUs."""
        if self.process_count > max(gpus, 1):
            yield (
                f"Process count per node should be at most the GPUs of a node:"
                f" {parameter('process_count_per_instance')} is {self.process_count}, and {vm_size} has"
                f" {gpus}."
            )


@dataclass(frozen=True)
class Cluster:
    """A compute target that exists."""

    name: str
    kind: str
    """Azure's type of compute target, in lower case: amlcompute is a cluster."""
    vm_size: str | None = None
    max_nodes: int | None = None
    is_low_priority: bool = False

    def problems(self, nodes: Nodes, gpus: int | None) -> Iterator[str]:
        """Yield why this cluster cannot provide the nodes. `gpus` is the number per node; None if unknown."""
        if self.kind != AMLCOMPUTE and nodes.instance_count > 1:
            yield (
                f"Several nodes need an AmlCompute cluster: {self.name} is of type {self.kind}, and"
                f" {parameter('instance_count')} is {nodes.instance_count}."
            )
        if self.max_nodes is not None and nodes.instance_count > self.max_nodes:
            yield (
                f"Node count should be at most the cluster's maximum: {parameter('instance_count')} is"
                f" {nodes.instance_count}, and {self.name} has at most {self.max_nodes} nodes. Raise it with"
                f" `az ml compute update --name {self.name} --max-instances {nodes.instance_count}`."
            )
        if nodes.vm_size and self.vm_size and nodes.vm_size.lower() != self.vm_size.lower():
            yield (
                f"{self.name} exists, and its nodes are {self.vm_size}: {parameter('vm_size')}"
                f" {nodes.vm_size} does not fit. Leave it out, or name another cluster."
            )
        if nodes.low_priority and not self.is_low_priority:
            yield (
                f"{self.name} exists, and its nodes are not of low priority: {parameter('low_priority')} does"
                " not fit. Leave it out, or name another cluster."
            )
        if gpus is not None and self.vm_size:
            yield from nodes.too_many_processes(self.vm_size, gpus)

    def ignored(self, nodes: Nodes) -> str:
        """Return a warning about an option that has no effect here; empty if there is none."""
        if nodes.max_nodes in (None, self.max_nodes):
            return ""
        return (
            f"{self.name} exists and has at most {self.max_nodes} nodes; {parameter('max_nodes')} is ignored."
        )


def _below_one(display_name: str, name: str, value: int) -> Iterator[str]:
    if value < 1:
        yield out_of_range(display_name, "greater than 0", parameter(name), value)
