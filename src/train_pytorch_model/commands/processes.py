"""Run a command's work in this process, in those that a launcher has started, or in one per GPU."""

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from train_pytorch_model.commands.launch import LAUNCHER, Agent, LaunchError, Worker, decide, start_workers
from train_pytorch_model.commands.once_per_node import Launch, offered, once_per_node
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.machine.priority import short_switch_interval
from train_pytorch_model.machine.process_table import end_with_parent

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

T = TypeVar("T")

# Environment variables that identify a launch. Processes restarted by torchrun belong to another one.
OF_LAUNCH = (
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"),  # from different versions of Open MPI
)
OF_NODE = ("GROUP_RANK", "NODE_RANK")  # distinguish several "nodes" on one host, as in tests


def opened_once(open_inputs: Callable[[], T], arguments: Sequence[str]) -> T:
    """Return or raise what `open_inputs` does; one process of this node calls it for all of them.

    `arguments` is the command line, starting with the verb.
    """
    try:
        part = decide(os.environ, num_gpus=0)
    except LaunchError:  # a mistake in the inputs is reported first
        return open_inputs()
    if isinstance(part, Agent) or part.local_size == 1:
        return open_inputs()
    started_by = os.environ.get(LAUNCHER) or [os.environ.get(name) for name in (*OF_LAUNCH, *OF_NODE)]
    return once_per_node(_launch(started_by, arguments, part.local_size), open_inputs)


def work_or_start_workers(
    work: "Callable[[World], None]",
    arguments: Sequence[str],
    inputs: object,
    before_workers: Callable[[], None] = lambda: None,
) -> None:
    """Run `work` in this process, or start one worker process per GPU with `arguments`, the verb first.

    Call it once the inputs are known to be good: it loads PyTorch, which takes seconds. Before workers start,
    `before_workers` is called; they receive `inputs` already opened. If they fail, this process exits with
    their status. Raises `LaunchError`, and whatever `work` raises.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        launcher = os.environ.get(LAUNCHER)
        end_with_parent(int(launcher) if launcher else None)

    import torch.cuda

    part = decide(os.environ, torch.cuda.device_count())
    if part.note:
        logger.info(part.note)
    if isinstance(part, Worker):
        _work(part, work)
    else:
        logger.info(part.torchrun_line(arguments))
        before_workers()
        with offered(_launch(str(os.getpid()), arguments, part.num_processes), inputs):
            status = start_workers(part, arguments)
        if status != 0:
            sys.exit(status)


def spelled(flags: Mapping[str, object], switches: Mapping[str, bool]) -> list[str]:
    """Return options as command-line arguments; a flag whose value is None is left out."""
    return [
        *(text for flag, value in flags.items() if value is not None for text in (flag, str(value))),
        *(switch for switch, is_on in switches.items() if is_on),
    ]


def _launch(started_by: object, arguments: Sequence[str], num_processes: int) -> Launch:
    """Return a launch's identity; `started_by` distinguishes launches of the same command."""
    return Launch(repr([socket.gethostname(), started_by, str(Path.cwd()), *arguments]), num_processes)


def _work(worker: Worker, work: "Callable[[World], None]") -> None:
    from torch.distributed.elastic.multiprocessing.errors import record

    from train_pytorch_model.distributed.world import join_world

    @record  # without it, torchrun shows no traceback of an exception
    def recorded() -> None:
        with short_switch_interval(), join_world() as world:
            work(world)

    keep_freed_memory()
    if worker.warning:
        logger.warning(worker.warning)
    before = dict(os.environ)
    os.environ.update(worker.environment())
    try:
        recorded()
    finally:  # the next command of this process decides anew
        os.environ.clear()
        os.environ.update(before)
