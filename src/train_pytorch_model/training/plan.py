"""The plan of a run: everything that is decided before the first step, with the reason for each
decision.

It is printed, logged to MLflow and shown in the report; nobody else remembers a decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Plan:
    """What a run will do, complete before the network is built."""

    config: TrainConfig
    inputs: TrainingInputs
    world: World
    fingerprint: Mapping[str, str]
    head: str  # the path of the last layer within the network
    framings: tuple[Framing, ...]  # framing of the training images, by epoch
    min_local_batch: int  # the fewest images of a step that batch norm can work on
    keeps_statistics: bool  # whether batch norms are fine-tuned with frozen, pretrained statistics
    num_frozen: (
        int  # how many first parameters fine-tuning leaves as they are; 0 for a frozen backbone
    )
    steps_per_epoch: int
    optimizer: OptimizerChoice
    schedule: PolynomialSchedule
    precision: Precision
    cache: CachePlan

    def learning_rate(self, epoch: int, step: int, rollback_factor: float) -> float:
        """The rate of a step, from 0, of an epoch, from 1: the schedule's times the rollback
        factor.
        """
        return self.schedule((epoch - 1) * self.steps_per_epoch + step) * rollback_factor

    @property
    def global_batch_size(self) -> int:
        return self.config.batch_size * self.world.size

    def steps_left(self, epoch: int, steps_done: int) -> int:
        """Steps left on images of the current size, if all epochs are trained; `epoch` is the open
        one.
        """
        epochs = self.framings[epoch - 1 :].count(self.framings[epoch - 1])
        return epochs * self.steps_per_epoch - steps_done


def make_plan(config: TrainConfig, inputs: TrainingInputs, world: World) -> Plan:
    """Decide everything that does not depend on the values of the weights.

    Raises `InvalidDatasetError`, `InvalidModelDirectoryError`, `ParameterError`.
    """
    recipe, architecture = inputs.recipe, inputs.model.architecture
    trained = (
        inputs.training,
        for_training(recipe, inputs.training_framing, inputs.training_framing),
    )
    validated = inputs.validation, for_inference(inputs.framing)
    framings = tuple(inputs.training_framings(config.epochs))
    # The least batch is a matter of shapes, for which a network without values is enough.
    with dry_runs.WithoutMemory():
        network = build_untrained(inputs.model, len(inputs.categories))
    if recipe.freeze_backbone:
        freeze_backbone(network, architecture)
    smallest = framings[0]
    least = dry_runs.min_local_batch(network, smallest.height, smallest.width)
    is_trained = inputs.model.is_pretrained or inputs.model.is_trained
    optimizer = choose_optimizer(recipe, network, is_trained)
    is_fine_tuned = inputs.model.is_fine_tuned_for(inputs.categories)
    steps_per_epoch = _steps_per_epoch(config, inputs, smallest, least, world)
    precision = choose_precision(recipe.precision, world.device)
    head, views = head_of(architecture, network), None
    if recipe.freeze_backbone and not why_views_differ(inputs, framings):
        width = dry_runs.width_of_features(network, head, smallest.height, smallest.width)
        views = (
            Views(1 + recipe.horizontal_flip, width, precision.dtype.itemsize) if width else None
        )
    num_frozen = 0
    if (
        is_fine_tuned
        and not recipe.freeze_backbone
        and config.epochs <= fine_tuning.FULL_RATE_EPOCHS
    ):
        share = fine_tuning.FROZEN_FRACTION
        num_frozen = dry_runs.count_first_parameters(
            network, smallest.height, smallest.width, share
        )
    return Plan(
        config=config,
        inputs=inputs,
        world=world,
        fingerprint=inputs.fingerprint(config),
        head=head,
        framings=framings,
        min_local_batch=least,
        keeps_statistics=is_fine_tuned and any(batch_norms(network)) and not recipe.freeze_backbone,
        num_frozen=num_frozen,
        steps_per_epoch=steps_per_epoch,
        optimizer=optimizer,
        schedule=PolynomialSchedule(
            peak_lr=config.learning_rate * world.size * optimizer.rate,
            warmup_steps=config.warmup_epochs * steps_per_epoch,
            total_steps=config.epochs * steps_per_epoch,
        ),
        precision=precision,
        cache=plan_cache(trained, validated, config.epochs, num_readers(world), views),
    )


def _steps_per_epoch(
    config: TrainConfig, inputs: TrainingInputs, framing: Framing, least: int, world: World
) -> int:
    """Steps of an epoch; each takes at least `least` images, the minimum at the size of `framing`."""
    architecture, size = inputs.model.architecture, f"{framing.height} x {framing.width} px"
    if config.batch_size < least:
        limit = wording.out_of_range(
            "Batch size", f"greater than {least - 1}", parameter("batch_size"), config.batch_size
        )
        raise errors.ParameterError(
            f"{limit} At {size} the batch norm of {architecture} needs {least} images a step."
        )
    steps = num_training_steps(len(inputs.training), config.batch_size, least, world.size)
    if steps == 0:
        what = f"it has {len(inputs.training)} image; {architecture} needs {least} at {size}."
        raise errors.InvalidDatasetError(inputs.training.title, what)
    return steps


def why_views_differ(inputs: TrainingInputs, framings: Sequence[Framing]) -> str:
    """Why a frozen backbone sees more of an image than two views, as it is and mirrored; empty if
    not.
    """
    if inputs.recipe.augmentation != "none":
        return f"each {inputs.recipe.augmentation} differs"
    if inputs.recipe.cutmix:
        return "CutMix combines images"
    return "the size of training images changes" if len(set(framings)) > 1 else ""
