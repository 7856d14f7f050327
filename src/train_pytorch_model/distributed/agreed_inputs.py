"""Make the inputs the same on all processes: each has opened them itself, possibly on its own host."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.run_folder import differing_options
from train_pytorch_model.inputs.opening import ScoringInputs, TrainingInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import TrainingError, listed

T = TypeVar("T", TrainingInputs, ScoringInputs)


def agree_on_training(config: TrainConfig, inputs: TrainingInputs, world: World) -> TrainingInputs:
    """The same inputs on all processes. Raises `TrainingError` if these run different commands."""
    if world.size == 1:
        return inputs
    own = inputs.fingerprint(config)
    told = world.gather([{name: own[name] for name in ("parameters", "untrained_model")}])
    others = [
        f"rank {rank}: {option} is {value}, not {mains}"
        if value
        else f"rank {rank}: {option} has other content"
        for rank, one in enumerate(told)
        for option, mains, value in differing_options(told[0], one)
    ]
    if others:
        raise TrainingError(
            f"Not all processes were started with the command of rank 0:{listed(others)}\n"
            "Start all of them with the same one."
        )
    agreed = _of_main(inputs, (inputs.training, inputs.validation), world)
    return replace(
        agreed,
        model=inputs.model,
        training=replace(agreed.training, root=inputs.training.root),
        validation=replace(agreed.validation, root=inputs.validation.root),
    )


def agree_on_scoring(inputs: ScoringInputs, world: World) -> ScoringInputs:
    """The same inputs on all processes."""
    if world.size == 1:
        return inputs
    agreed = _of_main(inputs, (inputs.images,), world)
    return replace(agreed, model=inputs.model, images=replace(agreed.images, root=inputs.images.root))


def _of_main(inputs: T, directories: Sequence[ImageDirectory], world: World) -> T:
    """The main process's inputs if not all have found the same images; missing ones are rejected when read.

    The same images in a different order do not count as the same: caches and results refer to rows.
    """
    found = [directory.fingerprint() + _sha256_of_rows(directory) for directory in directories]
    all_found = world.gather([found])
    if all(one == all_found[0] for one in all_found):
        return inputs
    ranks = [str(rank) for rank, one in enumerate(all_found) if one != all_found[0]]
    logger.warning(
        f"Other images exist or are readable for rank {', '.join(ranks)}; those of rank 0 are used."
    )
    return world.broadcast(inputs)


def _sha256_of_rows(directory: ImageDirectory) -> str:
    return hashlib.sha256(directory.rows.tobytes()).hexdigest()
