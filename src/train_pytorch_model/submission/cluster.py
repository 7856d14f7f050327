"""The compute cluster: the nodes requested, the cluster that exists, and conflicts between the two."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from train_pytorch_model.words.errors import out_of_range

DEFAULT_VM_SIZE = "Standard_NC4as_T4_v3"  # the cheapest size with a whole GPU
AMLCOMPUTE = "amlcompute"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_RESERVED = ("local", "serverless")  # Azure ML's names for compute that is not a cluster


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes that a job requests, and the cluster to create if it does not exist."""

    cluster: str
    instance_count: int = 1
    process_count: int = 1
    """Processes per node. With 1, the program starts one for each GPU."""
    vm_size: str | None = None
    max_nodes: int | None = None

    @property
    def new_vm_size(self) -> str:
        """The VM size of a cluster to create."""
        return self.vm_size or DEFAULT_VM_SIZE

    @property
    def new_max_nodes(self) -> int:
        """The maximum number of nodes of a cluster to create."""
        return self.instance_count if self.max_nodes is None else self.max_nodes

    def problems(self) -> Iterator[str]:
        """Yield the problems that can be found without asking Azure."""
        if not _NAME.fullmatch(self.cluster) or self.cluster.lower() in _RESERVED:
            yield (
                f"--compute {self.cluster!r} is not a cluster name: expected a letter, then letters, digits"
                f" and hyphens, and none of {', '.join(_RESERVED)}."
            )
        yield from _below_one("Node count", "--instance-count", self.instance_count)
        yield from _below_one("Process count per node", "--process-count-per-instance", self.process_count)
        if self.max_nodes is not None:
            yield from _below_one("Maximum number of nodes", "--max-nodes", self.max_nodes)
            if 0 < self.max_nodes < self.instance_count:
                yield (
                    f"Node count should be at most the cluster's maximum: --instance-count is"
                    f" {self.instance_count}, --max-nodes {self.max_nodes}."
                )

    def too_many_processes(self, vm_size: str, gpus: int) -> Iterator[str]:
        """Yield a problem if processes would share a GPU, which makes NCCL fail, or a node without GPUs."""
        if self.process_count > max(gpus, 1):
            yield (
                f"Process count per node should be at most the GPUs of a node:"
                f" --process-count-per-instance is {self.process_count}, and {vm_size} has {gpus}."
            )


@dataclass(frozen=True)
class Cluster:
    """A compute target that exists."""

    name: str
    kind: str
    """Azure's type of compute target, in lower case: amlcompute is a cluster."""
    vm_size: str | None = None
    max_nodes: int | None = None

    def problems(self, nodes: Nodes, gpus: int | None) -> Iterator[str]:
        """Yield why this cluster cannot provide the nodes. `gpus` is the number per node; None if unknown."""
        if self.kind != AMLCOMPUTE and nodes.instance_count > 1:
            yield (
                f"Several nodes need an AmlCompute cluster: {self.name} is of type {self.kind}, and"
                f" --instance-count is {nodes.instance_count}."
            )
        if self.max_nodes is not None and nodes.instance_count > self.max_nodes:
            yield (
                f"Node count should be at most the cluster's maximum: --instance-count is"
                f" {nodes.instance_count}, and {self.name} has at most {self.max_nodes} nodes. Raise it with"
                f" `az ml compute update --name {self.name} --max-instances {nodes.instance_count}`."
            )
        if nodes.vm_size and self.vm_size and nodes.vm_size.lower() != self.vm_size.lower():
            yield (
                f"{self.name} exists, and its nodes are {self.vm_size}: --vm-size {nodes.vm_size} does not"
                " fit. Leave it out, or name another cluster."
            )
        if gpus is not None and self.vm_size:
            yield from nodes.too_many_processes(self.vm_size, gpus)

    def ignored(self, nodes: Nodes) -> str:
        """Return a warning about an option that has no effect here; empty if there is none."""
        if nodes.max_nodes in (None, self.max_nodes):
            return ""
        return f"{self.name} exists and has at most {self.max_nodes} nodes; --max-nodes is ignored."


def _below_one(parameter: str, flag: str, value: int) -> Iterator[str]:
    if value < 1:
        yield out_of_range(parameter, "greater than 0", flag, value)
