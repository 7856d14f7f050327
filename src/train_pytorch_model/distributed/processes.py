"""Run a story in as many processes as there are GPUs; refuse mistakes before PyTorch is loaded."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from train_pytorch_model.errors import LostRankError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import LAUNCHER, is_alone
from train_pytorch_model.machine.liveness import end_with_parent

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

CONNECTION_TIMEOUT_S = 5.0

T = TypeVar("T", OpenedInputs, ScoringInputs)
D = TypeVar("D", ImageDirectory, ModelDirectory)
R = TypeVar("R")


def run_in_processes(
    story: "Callable[[T, World], R]",
    open_inputs: Callable[[], T | None],
    arguments: Sequence[str],
    options: Mapping[str, str],
) -> R | None:
    """Open inputs and run a story on them, unless they are None, here or in a worker per GPU.

    `arguments` is the command line of the workers, the verb first; all processes need the same
    `options`. Returns what the story returns, None if it does not run in this process. Raises
    `LaunchError`, `FailedWorkersError`, and what the two functions raise.
    """
    began = CoreTimes.now()
    opened = None
    if is_alone(os.environ):
        opened = open_inputs()
        if opened is None:
            return None
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _end_with_launcher()

    # Loads PyTorch, which takes seconds.
    from train_pytorch_model.distributed.story import run_story

    return run_story(story, open_inputs, opened, arguments, options, began)


def _end_with_launcher() -> None:
    """End this process when torchrun ends, even if that is killed.

    Raises `LostRankError` if it has ended already.
    """
    launcher = os.environ.get(LAUNCHER)
    end_with_parent(int(launcher) if launcher else None)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    # As long as the launcher lives, it answers there.
    address = (os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0")))
    try:
        socket.create_connection(address, CONNECTION_TIMEOUT_S).close()
    except ConnectionRefusedError as error:
        raise LostRankError(
            "torchrun has started this process, and has ended. Start it again."
        ) from error
    except OSError:
        pass  # whoever meets there will say why not


def on_this_host(directory: D, root: Path) -> D:
    """Return a directory that rank 0 has opened with its path on this host."""
    if directory.root == root:
        return directory
    return replace(directory, root=root)
