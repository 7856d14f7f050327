"""Train on one folder, then evaluate the model on the images of it that were held out."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.run_folder import EVALUATION
from train_pytorch_model.inputs.opening import OpenedInputs, evaluation_inputs, open_trained
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.measures.evaluation import Evaluation
from train_pytorch_model.stories.evaluate import evaluate
from train_pytorch_model.stories.train import train
from train_pytorch_model.words.config import TrainConfig


def fit(
    config: TrainConfig,
    inputs: OpenedInputs,
    output: Path,
    world: World,
    fresh: bool,
    stops: Callable[[], AbstractContextManager[StopRequests]],
) -> Evaluation | None:
    """Train like `train`, unless that is done, and write the evaluation of the test images into the model.

    Called on all processes; the main one alone evaluates, and returns the evaluation. Raises what `train` and
    `evaluate` raise.
    """
    if not (output / META).exists():
        train(config, inputs, output, world, fresh, stops)
    if not world.is_main or inputs.test is None:
        return None
    scoring = evaluation_inputs(open_trained(output), inputs.test)
    return evaluate(scoring, output / EVALUATION, World(0, 1, 0, 1, world.device))
