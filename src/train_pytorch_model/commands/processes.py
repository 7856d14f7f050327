"""Run a verb's story in as many processes as there are GPUs, refusing mistakes before PyTorch is loaded."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from train_pytorch_model.datasets.conversion import unpacked
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.inputs.opening import DATASET, OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import set_up
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import LAUNCHER, is_alone, rank_of
from train_pytorch_model.machine.process_table import end_with_parent
from train_pytorch_model.words.errors import LostRankError
from train_pytorch_model.words.settings import flag

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
    """Open the inputs, and run a story on them in this process or in one worker per GPU.

    `arguments` is the command line, starting with the verb; `options` must be the same for all processes.
    There is nothing to do if the inputs are None. Raises `LaunchError`, and what the two functions raise.
    """
    opened, began = None, CoreTimes.now()
    if is_alone(os.environ) and (opened := open_inputs()) is None:
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _end_with_launcher()

    from train_pytorch_model.stories import processes  # loads PyTorch, which takes seconds

    processes.run_story(story, open_inputs, opened, arguments, options, began)


def _end_with_launcher() -> None:
    """End when torchrun ends, which cannot end its workers if it is killed; they would wait for each other.

    Raises `LostRankError` if it has already ended: its workers meet at an address at which it answers.
    """
    launcher = os.environ.get(LAUNCHER)
    end_with_parent(int(launcher) if launcher else None)
    address = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        try:
            socket.create_connection(address, CONNECTION_TIMEOUT_S).close()
        except ConnectionRefusedError as error:
            raise LostRankError(
                "torchrun has started this process, and has ended. Start it again."
            ) from error
        except OSError:
            pass  # whoever meets there will say why not


@dataclass(frozen=True, kw_only=True)
class OnImages:
    """Abstract. A verb that predicts the images of a dataset, and writes about them."""

    trained_model: Path
    """Trained model directory, as written by train."""
    dataset: Path

    def predict(
        self,
        verb: str,
        story: "Callable[[ScoringInputs, World], None]",
        open_inputs: Callable[[Path, Path], ScoringInputs],
        output_name: str,
        quiet: bool,
    ) -> None:
        """Run the story on the inputs, opened from the trained model and the dataset, unpacked if necessary.

        `output_name` is the field with the output directory.
        """
        is_main, output = rank_of(os.environ) == 0, getattr(self, output_name)
        set_up(is_main, quiet)
        check_apart(output, output_name, self.dataset, "dataset")

        def open_and_check() -> ScoringInputs:
            inputs = open_inputs(self.trained_model, path)
            check_output(output, output_name, by_writing=is_main)
            return inputs

        def story_on_this_host(inputs: ScoringInputs, world: "World") -> None:
            model = on_this_host(inputs.model, self.trained_model)
            images = on_this_host(inputs.images, path if path.is_dir() else path.parent)
            story(replace(inputs, model=model, images=images), world)

        with unpacked(self.dataset, DATASET, output, output_name) as path:
            arguments = [verb, *options_of(replace(self, dataset=path))]
            run_in_processes(story_on_this_host, open_and_check, arguments, {})


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
