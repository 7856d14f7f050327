"""A compute target that exists, and whether a submission fits it."""

from collections.abc import Iterator
from dataclasses import dataclass

from train_pytorch_model.azure.rules import problems_of_processes
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.config.wording import parameter


@dataclass(frozen=True)
class Cluster:
    """A compute target that exists."""

    name: str
    kind: str  # Azure's type of compute target, in lower case: amlcompute is a cluster
    vm_size: str | None = None
    max_nodes: int | None = None
    is_low_priority: bool = False

    def problems(self, submission: Submission, gpus: int | None) -> Iterator[str]:
        """Yield why this cluster cannot provide the nodes.

        `gpus` is the number per node; None if unknown.
        """
        yield from self._problems_of_count(submission)
        yield from self._problems_of_nodes(submission)
        if gpus is not None and self.vm_size:
            yield from problems_of_processes(submission, self.vm_size, gpus)

    def _problems_of_count(self, submission: Submission) -> Iterator[str]:
        count = submission.instance_count
        name = parameter("instance_count")
        if self.kind != "amlcompute" and count > 1:
            yield (
                f"Several nodes need an AmlCompute cluster: {self.name} is of type {self.kind}, and"
                f" {name} is {count}."
            )
        if self.max_nodes is not None and count > self.max_nodes:
            yield (
                f"Node count should be at most the cluster's maximum: {name} is {count}, and"
                f" {self.name} has at most {self.max_nodes} nodes. Raise it with"
                f" `az ml compute update --name {self.name} --max-instances {count}`."
            )

    def _problems_of_nodes(self, submission: Submission) -> Iterator[str]:
        exists = f"{self.name} exists, and its nodes are"
        remedy = "does not fit. Leave it out, or name another cluster."
        vm_size = submission.vm_size
        if vm_size and self.vm_size and vm_size.lower() != self.vm_size.lower():
            yield f"{exists} {self.vm_size}: {parameter('vm_size')} {vm_size} {remedy}"
        if submission.low_priority and not self.is_low_priority:
            yield f"{exists} not of low priority: {parameter('low_priority')} {remedy}"
