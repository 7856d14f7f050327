"""A command's work in this process, in those that somebody has started, or in one for each GPU."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from train_pytorch_model.launch import LAUNCHER, Worker, decide, start_workers
from train_pytorch_model.memory import keep_freed_memory
from train_pytorch_model.priority import quick_turns
from train_pytorch_model.process_table import end_with_parent
from train_pytorch_model.progress import Voice

if TYPE_CHECKING:
    from train_pytorch_model.distributed import World


def work_or_start_workers(work: "Callable[[World], None]", arguments: Sequence[str], voice: Voice) -> None:
    """Do the work as one of its processes, or start these by `arguments`, the verb first.

    Call it when the inputs are known to be good: it loads PyTorch, which takes seconds. Processes that fail
    end this one with their status. Raises `LaunchError`, and what the work raises.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        launcher = os.environ.get(LAUNCHER)
        end_with_parent(int(launcher) if launcher else None)

    import torch.cuda

    part = decide(os.environ, torch.cuda.device_count())
    if part.note:
        voice.say(part.note)
    if isinstance(part, Worker):
        _work(part, work, voice)
    else:
        voice.say(part.torchrun_line(arguments))
        if (status := start_workers(part, arguments)) != 0:
            sys.exit(status)


def spelled(flags: Mapping[str, object], switches: Mapping[str, bool]) -> list[str]:
    """Options as a command line has them; a value of None is left out."""
    return [
        *(text for flag, value in flags.items() if value is not None for text in (flag, str(value))),
        *(switch for switch, is_on in switches.items() if is_on),
    ]


def _work(worker: Worker, work: "Callable[[World], None]", voice: Voice) -> None:
    from torch.distributed.elastic.multiprocessing.errors import record

    from train_pytorch_model.distributed import join_world

    @record  # without it, torchrun shows no traceback of a fault
    def recorded() -> None:
        with quick_turns(), join_world() as world:
            work(world)

    keep_freed_memory()
    if worker.warning:
        voice.warn(worker.warning)
    before = dict(os.environ)
    os.environ.update(worker.environment())
    try:
        recorded()
    finally:  # the next work of this process decides anew
        os.environ.clear()
        os.environ.update(before)
