"""The plan of a run: everything that is decided before the network is built, with the reasons.

It is printed, logged to MLflow and shown in the report; nobody else remembers a decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from train_pytorch_model import errors
from train_pytorch_model.config import wording
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.data.cache_budget import plan_cache
from train_pytorch_model.data.cache_plan import CachePlan, Views
from train_pytorch_model.data.epoch_plan import num_training_steps
from train_pytorch_model.data.loader import num_readers
from train_pytorch_model.data.preparation import for_inference, for_training
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.architectures import head_of
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.networks import dry_runs
from train_pytorch_model.networks.batch_norms import batch_norms
from train_pytorch_model.networks.build import build_untrained
from train_pytorch_model.networks.frozen_backbone import freeze_backbone
from train_pytorch_model.training import fine_tuning
from train_pytorch_model.training.optimizer import OptimizerChoice, choose_optimizer
from train_pytorch_model.training.precision import Precision, choose_precision
from train_pytorch_model.training.schedule import PolynomialSchedule
from train_pytorch_model.training.task import Task, choose_task


@dataclass(frozen=True)
class Plan:
    """What a run will do, complete before the network is built."""

    config: TrainConfig
    inputs: TrainingInputs
    world: World
    task: Task
    fingerprint: Mapping[str, str]
    head: str  # the path of the last layer within the network
    framings: tuple[Framing, ...]  # of the training images, by epoch
    min_local_batch: int  # the fewest images of a step that batch norm can work on
    has_frozen_statistics: bool  # whether batch norms normalize by pretrained statistics
    num_frozen: int  # first parameters that fine-tuning leaves as they are; 0 for a frozen backbone
    steps_per_epoch: int
    optimizer: OptimizerChoice
    schedule: PolynomialSchedule
    precision: Precision
    cache: CachePlan

    def learning_rate(self, epoch: int, step: int, rollback_factor: float) -> float:
        """Return the learning rate of a step, counted from 0, of an epoch, counted from 1.

        It is the schedule's, times the factor of rollbacks; a parameter group multiplies it by its
        own factor (`set_learning_rate`).
        """
        return self.schedule((epoch - 1) * self.steps_per_epoch + step) * rollback_factor

    @property
    def global_batch_size(self) -> int:
        """Return the images of a step, of all processes."""
        return self.config.batch_size * self.world.size

    def remaining_steps(self, epoch: int, steps_done: int) -> int:
        """Return the steps still to take on images of the current size, if all epochs are trained.

        `epoch` is the open one, of which `steps_done` have been taken.
        """
        epochs = self.framings[epoch - 1 :].count(self.framings[epoch - 1])
        return epochs * self.steps_per_epoch - steps_done


def make_plan(config: TrainConfig, inputs: TrainingInputs, world: World) -> Plan:
    """Decide everything that does not depend on the values of the weights.

    Raises `InvalidDatasetError`, `InvalidModelDirectoryError`, `ParameterError`.
    """
    recipe = inputs.recipe
    model = inputs.model
    framings = tuple(inputs.training_framings(config.epochs))
    smallest = framings[0]

    # Shapes decide the rest, for which a network without values is enough.
    network = _network_without_values(inputs)
    min_local_batch = dry_runs.min_local_batch(network, smallest.height, smallest.width)
    optimizer = choose_optimizer(recipe, network, model.is_pretrained or model.is_trained)
    steps_per_epoch = _steps_per_epoch(config, inputs, smallest, min_local_batch, world)
    schedule = PolynomialSchedule(
        peak_lr=config.learning_rate * world.size * optimizer.rate,
        warmup_steps=config.warmup_epochs * steps_per_epoch,
        total_steps=config.epochs * steps_per_epoch,
    )
    precision = choose_precision(recipe.precision, world.device)
    head = head_of(model.architecture, network)
    views = _cached_views(inputs, framings, network, head, precision)
    trains_backbone = not recipe.freeze_backbone
    is_fine_tuned = trains_backbone and model.is_fine_tuned_for(inputs.categories)
    num_frozen = 0
    if is_fine_tuned and config.epochs <= fine_tuning.FULL_RATE_EPOCHS:
        num_frozen = dry_runs.count_first_parameters(
            network, smallest.height, smallest.width, fine_tuning.FROZEN_FRACTION
        )
    return Plan(
        config=config,
        inputs=inputs,
        world=world,
        task=choose_task(inputs, world),
        fingerprint=inputs.fingerprint(config),
        head=head,
        framings=framings,
        min_local_batch=min_local_batch,
        has_frozen_statistics=is_fine_tuned and any(batch_norms(network)),
        num_frozen=num_frozen,
        steps_per_epoch=steps_per_epoch,
        optimizer=optimizer,
        schedule=schedule,
        precision=precision,
        cache=_plan_cache(config, inputs, world, views),
    )


def _network_without_values(inputs: TrainingInputs) -> nn.Module:
    with dry_runs.WithoutMemory():
        network = build_untrained(inputs.model, len(inputs.categories))
    if inputs.recipe.freeze_backbone:
        freeze_backbone(network, inputs.model.architecture)
    return network


def _steps_per_epoch(
    config: TrainConfig,
    inputs: TrainingInputs,
    framing: Framing,
    min_local_batch: int,
    world: World,
) -> int:
    """Return the steps of an epoch, each with the images that batch norm needs at this framing."""
    architecture = inputs.model.architecture
    size = f"{framing.height} x {framing.width} px"
    if config.batch_size < min_local_batch:
        limit = wording.out_of_range(
            "Batch size",
            f"greater than {min_local_batch - 1}",
            parameter("batch_size"),
            config.batch_size,
        )
        raise errors.ParameterError(
            f"{limit} At {size} the batch norm of {architecture} needs {min_local_batch} images a"
            " step."
        )
    num_images = len(inputs.training)
    steps = num_training_steps(num_images, config.batch_size, min_local_batch, world.size)
    if steps == 0:
        raise errors.InvalidDatasetError(
            inputs.training.title,
            f"it has {num_images} image; {architecture} needs {min_local_batch} at {size}.",
        )
    return steps


def _cached_views(
    inputs: TrainingInputs,
    framings: Sequence[Framing],
    network: nn.Module,
    head: str,
    precision: Precision,
) -> Views | None:
    """Return the views of an image whose features may be cached; None if they cannot be."""
    recipe = inputs.recipe
    if not recipe.freeze_backbone or why_views_differ(inputs, framings):
        return None
    num_features = dry_runs.width_of_features(network, head, framings[0].height, framings[0].width)
    if not num_features:
        return None
    return Views(1 + recipe.horizontal_flip, num_features, precision.dtype.itemsize)


def why_views_differ(inputs: TrainingInputs, framings: Sequence[Framing]) -> str:
    """Return why a frozen backbone sees more of an image than it as it is, and mirrored.

    Empty if these two views are all.
    """
    if inputs.recipe.augmentation != "none":
        return f"each {inputs.recipe.augmentation} differs"
    if inputs.recipe.cutmix:
        return "CutMix combines images"
    if len(set(framings)) > 1:
        return "the size of training images changes"
    return ""


def _plan_cache(
    config: TrainConfig, inputs: TrainingInputs, world: World, views: Views | None
) -> CachePlan:
    preparation = for_training(inputs.recipe, inputs.training_framing, inputs.training_framing)
    return plan_cache(
        (inputs.training, preparation),
        (inputs.validation, for_inference(inputs.framing)),
        config.epochs,
        num_readers(world),
        views,
        world.memory_files,
    )
