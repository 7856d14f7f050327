"""Run a verb's story in as many processes as there are GPUs, refusing mistakes before PyTorch is
loaded.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from train_pytorch_model.config.wording import flag
from train_pytorch_model.errors import LostRankError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import LAUNCHER, is_alone
from train_pytorch_model.machine.liveness import end_with_parent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from train_pytorch_model.distributed.world import World

CONNECTION_TIMEOUT_S = 5.0

T = TypeVar("T", OpenedInputs, ScoringInputs)
D = TypeVar("D", ImageDirectory, ModelDirectory)


def run_in_processes(
    story: "Callable[[T, World], None]",
    open_inputs: Callable[[], T | None],
    arguments: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Open inputs and run a story on them, unless they are None, here or in a worker per GPU.

    `arguments` is the command line, the verb first; all processes need the same `options`. Raises
    `LaunchError`, and what the two functions raise.
    """
    opened, began = None, CoreTimes.now()
    if is_alone(os.environ) and (opened := open_inputs()) is None:
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _end_with_launcher()

    from train_pytorch_model.distributed.story import (
        run_story,  # loads PyTorch, which takes seconds
    )

    run_story(story, open_inputs, opened, arguments, options, began)


def _end_with_launcher() -> None:
    """End when torchrun ends, even if it is killed.

    Raises `LostRankError` if it has ended already.
    """
    launcher = os.environ.get(LAUNCHER)
    end_with_parent(int(launcher) if launcher else None)
    address = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        try:  # as long as it lives, it answers there
            socket.create_connection(address, CONNECTION_TIMEOUT_S).close()
        except ConnectionRefusedError as error:
            text = "torchrun has started this process, and has ended. Start it again."
            raise LostRankError(text) from error
        except OSError:
            pass  # whoever meets there will say why not


def on_this_host(directory: D, root: Path) -> D:
    """Return a directory that rank 0 has opened with its path on this host."""
    return directory if directory.root == root else replace(directory, root=root)


def options_of(command: "DataclassInstance") -> Iterator[str]:
    """Yield the options that differ from their defaults, for the workers that a command starts."""
    for option in fields(command):
        value = getattr(command, option.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from options_of(value)
        elif value != option.default:
            yield from (flag(option.name),) if value is True else (flag(option.name), str(value))
