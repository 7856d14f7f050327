"""Network, data and optimizer of a run, set up once: an epoch is then one call."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from train_pytorch_model.data.cache_plan import open_caches, plan_cache
from train_pytorch_model.data.cutmix import with_cutmix
from train_pytorch_model.data.decode_cache import NO_CACHES
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.loader import (
    Batch,
    Loader,
    Pass,
    num_readers,
    num_threads,
    on_device,
    read_for_inference,
    read_for_training,
)
from train_pytorch_model.data.plan import num_training_steps, plan_training, plan_validation
from train_pytorch_model.data.preparation import for_inference, for_training
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.normalization import Normalize
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.inputs.bad_images import left_out, without_bad_images
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.loop.cuda_graph_step import CudaGraphStep
from train_pytorch_model.loop.epoch_view import AfterStep, EpochView, RunLength, show_every
from train_pytorch_model.loop.fine_tuning import prepare_fine_tuning
from train_pytorch_model.loop.memory_probe import explaining_out_of_memory, validated_at_once
from train_pytorch_model.loop.metrics import Metrics, Sums
from train_pytorch_model.loop.optimization import make_loss, make_optimizer
from train_pytorch_model.loop.passes import (
    ImageResults,
    NotFiniteError,
    Step,
    StepReport,
    TrainStep,
    documented_metrics,
    evaluate,
    train_one_epoch,
)
from train_pytorch_model.loop.precision import choose_precision
from train_pytorch_model.loop.schedule import PolynomialSchedule
from train_pytorch_model.loop.train_state import Snapshot, TrainState
from train_pytorch_model.loop.trials import Trials
from train_pytorch_model.machine.console import Bar, logger, progress_bar
from train_pytorch_model.measures.time_budget import EpochTimes
from train_pytorch_model.networks.batch_norms import raise_momentum, set_training_mode
from train_pytorch_model.networks.initialization import initialise_from_scratch
from train_pytorch_model.networks.models import build_model, freeze_backbone
from train_pytorch_model.networks.on_cpu import adapt_to_cpu
from train_pytorch_model.networks.shapes import min_share
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import InvalidDatasetError, ParameterError, TrainingError, out_of_range
from train_pytorch_model.words.seeds import derive_seed

MAX_ROLLBACKS = 3


class Trainer:
    """Trains and validates epochs; everything that changes as it trains is in `state`.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `ParameterError`, `TrainingError`.
    """

    def __init__(
        self,
        config: TrainConfig,
        inputs: TrainingInputs,
        world: World,
        micro_batch: int | None = None,
    ) -> None:
        recipe, framing, directory = inputs.recipe, inputs.training_framing, inputs.model
        self._timed_at = time.perf_counter()
        self._caches = NO_CACHES
        self._results: dict[int, ImageResults] = {}  # by epoch: the open one and the best
        readers = num_readers(world)
        trained = inputs.training, for_training(recipe, framing, framing)
        validated = inputs.validation, for_inference(inputs.framing)
        self.cache_plan = plan_cache(trained, validated, config.epochs, world, readers)
        self.config, self.inputs, self.world = config, inputs, world

        self.precision = choose_precision(recipe.precision, world.device)
        torch.manual_seed(derive_seed(config.random_seed, "weights"))
        self.network = build_model(directory, len(inputs.categories))
        if recipe.freeze_backbone:
            freeze_backbone(self.network, directory.architecture)
        self.training_framings = inputs.training_framings(config.epochs)
        smallest = self.training_framings[0]
        self.min_share = min_share(self.network, smallest.height, smallest.width)
        self.steps_per_epoch = _steps_per_epoch(config, inputs, smallest, self.min_share, world)
        raise_momentum(self.network, self.steps_per_epoch)
        self.schedule = PolynomialSchedule(
            peak_lr=config.learning_rate * world.size,
            warmup_steps=config.warmup_epochs * self.steps_per_epoch,
            total_steps=config.epochs * self.steps_per_epoch,
        )
        if not (directory.is_pretrained or directory.is_trained or recipe.freeze_backbone):
            shown = len(inputs.training) / len(inputs.categories)  # per category and epoch
            rate, at_once = self.schedule.peak_lr, config.batch_size * world.size
            initialise_from_scratch(self.network, directory.architecture, config.epochs, shown, rate, at_once)
        is_on_cpu = world.device.type == "cpu"
        if is_on_cpu:
            adapt_to_cpu(self.network, framing.height, framing.width)
        pixels = [framing.num_pixels for framing in self.training_framings]
        self.length = RunLength(len(inputs.training), pixels, self.steps_per_epoch, is_on_cpu)
        model = nn.Sequential(Normalize(inputs.spec.mean, inputs.spec.std), self.network)
        self._model = model.to(world.device).to(memory_format=torch.channels_last)
        factors = prepare_fine_tuning(self._model, inputs, config, world)
        optimizer, scaler = make_optimizer(self.network, factors), self.precision.scaler(world.device)
        self.state = TrainState(self.network, optimizer, scaler, config.patience, world.device)
        self.state.position.bad_images += inputs.bad_images
        # Next to a loader's threads `torch.manual_seed` takes 1.7 ms, in which a fast GPU finishes a step.
        self._generator = _generator_of(world.device)
        trials = Trials(self._model, self.state, framing, self.precision, world)
        self._step = TrainStep(
            model=world.replicate(self._model),
            optimizer=optimizer,
            scaler=scaler,
            loss_sum=make_loss(inputs, world),
            precision=self.precision,
            world=world,
            micro_batch=trials.fitting_micro_batch(config.batch_size, micro_batch, self.min_share),
            min_share=self.min_share,
        )
        self._take_step: Step = self._step
        if world.size > 1:
            trials.settle_buckets(self._step.model, self.min_share)
        elif not is_on_cpu and self._step.micro_batch is None:
            self._take_step = CudaGraphStep(self._step, self._steps_left, trials.compiled)

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left, or the patience is exhausted."""
        return self.state.position.epoch > self.config.epochs or self.state.patience.is_exhausted

    @property
    def training(self) -> ImageDirectory:
        """The training images, without those found unreadable in completed epochs."""
        return self.inputs.training.without(self.state.position.left_out["training"])

    @property
    def validation(self) -> ImageDirectory:
        """The validation images, without those found unreadable in completed epochs."""
        return self.inputs.validation.without(self.state.position.left_out["validation"])

    def train(self, loader: Loader, after_step: AfterStep, max_steps: int | None = None) -> StepReport:
        """Train on the rest of the open epoch."""
        training, position = self.training, self.state.position
        # A run that resumes with another number of processes continues at the same image.
        position.steps_done = math.ceil(position.images_done / (self.config.batch_size * self.world.size))
        current = self._training_pass(position.epoch, position.images_done, max_steps)
        batches = on_device(
            loader.batches(current, lambda: self._validation_pass(max_steps)), self.world.device
        )
        first_step = (position.epoch - 1) * self.steps_per_epoch

        def after_each(loss_sum: Tensor) -> None:
            self.take_time()
            after_step(loss_sum)

        set_training_mode(self.network)
        title = f"Epoch {position.epoch}/{self.config.epochs}"
        fitting = self._telling_what_fits(self._trained_at_once)
        left, frequency = len(current.plan), self.config.print_frequency
        total = position.steps_done + left
        with progress_bar(total, title, position.steps_done, frequency) as bar, fitting:
            view = EpochView(bar, loader, position, left, self.length, after_each)
            trained = train_one_epoch(
                self._take_step,
                self._randomised(batches),
                lambda number: self.schedule(first_step + number),
                self.state,
                show_every(frequency, self.steps_per_epoch),
                view,
            )
        self._leave_out("training", self.inputs.training, training, position.rejected)
        position.rejected = {}  # recorded above; a run that resumes from here runs this once more
        return trained

    def validate(
        self, loader: Loader, before_batch: Callable[[], None] = lambda: None, max_steps: int | None = None
    ) -> Metrics:
        """Validate the current network; the metrics are the same on every process."""
        started_at = time.perf_counter()
        validation = self.validation
        self.state.average_statistics(self.world)
        sums, results = self._evaluate_images(
            "Validation", loader, self._next_training_pass, before_batch, max_steps
        )
        validated = sums.reduce(self.world)
        self._leave_out("validation", self.inputs.validation, validation, results.rejected)
        self._results[self.state.position.epoch] = replace(results, rejected={})  # recorded above
        self.state.position.validation_s = time.perf_counter() - started_at
        return validated

    def results_of_best(self, title: str, loader: Loader, before_batch: Callable[[], None]) -> ImageResults:
        """This process's validation results of the best epoch.

        They are kept from then on; a run interrupted since validates again, with the weights of that epoch.
        """
        best = self.state.best
        if best.epoch not in self._results:
            self.network.load_state_dict(best.weights)
            _, self._results[best.epoch] = self._evaluate_images(title, loader, lambda: None, before_batch)
        return self._results[best.epoch]

    def close_epoch(self, trained: StepReport, validated: Metrics) -> None:
        """Record the results of an epoch, and open the next one."""
        state = self.state
        epoch = state.position.epoch
        state.best.observe(epoch, validated, self.network)
        self._results = {
            number: results for number, results in self._results.items() if number == state.best.epoch
        }
        state.patience.observe(validated.loss)
        metrics = documented_metrics(trained, validated)
        state.position.history.append({"epoch": epoch, "step": epoch * self.steps_per_epoch, **metrics})
        position = state.position
        position.times.append(EpochTimes(position.elapsed_s, position.waited_s, position.validation_s))
        self.take_time()
        position.open_next_epoch()
        state.sums.values.zero_()

    def take_time(self) -> None:
        """Add the time since the last call to the time of the run."""
        now = time.perf_counter()
        self.state.position.run_s += now - self._timed_at
        self._timed_at = now

    def environment(self) -> dict[str, str]:
        """What a result depends on bit for bit, besides inputs and parameters."""
        return {
            "processes": str(self.world.size),
            "device": self.world.device.type,
            "precision": str(self.precision.dtype),
            "threads": str(torch.get_num_threads()),
            "images at once": str(self._trained_at_once),
            "torch": torch.__version__,
        }

    def roll_back(self, good: Snapshot, error: NotFiniteError) -> None:
        """Restore the last good state and halve the learning rate. Raises `TrainingError` the fourth time."""
        position = self.state.position
        where = f"step {position.steps_done} of epoch {position.epoch}"
        factor, rollbacks = position.lr_factor / 2, position.rollbacks + 1
        if rollbacks > MAX_ROLLBACKS:
            raise TrainingError(
                f"{error} at {where}, after halving the learning rate {MAX_ROLLBACKS} times."
                f" Lower --learning-rate, now {self.config.learning_rate}, or warm up with"
                " --warmup-step-number."
            )
        run_s = position.run_s  # discarded steps have taken their time
        self.state.restore(good)
        position = self.state.position
        position.lr_factor, position.rollbacks, position.run_s = factor, rollbacks, run_s
        logger.warning(
            f"{error} at {where}. Back to step {position.steps_done} of epoch {position.epoch}, the learning"
            f" rate halved from here on ({rollbacks} of {MAX_ROLLBACKS} times)."
        )

    @contextmanager
    def loader(self, readers: Decoders | None) -> Iterator[Loader]:
        """The loader that makes the batches, for a `with` in which decoded images are cached as planned.

        `readers` have been started, but have not received a request yet.
        """
        with open_caches(self.cache_plan, self.world) as self._caches:
            if readers is not None:
                readers.share(self._caches.shared, self._caches.files)
            with Loader(num_threads(self.world), readers) as loader:
                yield loader
        self._caches = NO_CACHES

    def _training_pass(self, epoch: int, images_done: int = 0, max_steps: int | None = None) -> Pass:
        training, inputs, seed = self.training, self.inputs, self.config.random_seed
        framing = self.training_framings[epoch - 1]
        plan = plan_training(
            len(training),
            self.config.batch_size,
            self.min_share,
            seed,
            epoch,
            self.world.rank,
            self.world.size,
            images_done,
        )[:max_steps]
        prepared = for_training(inputs.recipe, framing, inputs.training_framing)
        read = read_for_training(training, prepared, seed, epoch, self._caches.training)
        key = f"training {epoch} of {len(training)} images, {len(plan)} batches"
        return Pass(key, plan, read, training.class_indices, framing)

    def _next_training_pass(self) -> Pass | None:
        following = self.state.position.epoch + 1
        return self._training_pass(following) if following <= self.config.epochs else None

    def _validation_pass(self, max_steps: int | None = None) -> Pass:
        validation, framing = self.validation, self.inputs.framing
        plan = plan_validation(len(validation), self._validated_at_once, self.world.rank, self.world.size)
        plan = plan[:max_steps]
        read = read_for_inference(validation, framing, self._caches.validation)
        key = f"validation of {len(validation)} images, {len(plan)} batches"
        return Pass(key, plan, read, validation.class_indices, framing)

    def _evaluate_images(
        self,
        title: str,
        loader: Loader,
        following: Callable[[], Pass | None],
        before_batch: Callable[[], None],
        max_steps: int | None = None,
    ) -> tuple[Sums, ImageResults]:
        """Evaluate the current network on this process's validation images.

        The places in the result are indices into `inputs.validation`.
        """
        validation, current = self.validation, self._validation_pass(max_steps)

        def batches(bar: Bar) -> Iterator[Batch]:
            for batch in on_device(loader.batches(current, following), self.world.device):
                before_batch()
                yield batch
                bar.advance()

        fitting = self._telling_what_fits(self._validated_at_once)
        with progress_bar(len(current.plan), title) as bar, fitting:
            sums, results = evaluate(self._model, batches(bar), self.precision, self.world.device)
        return sums, replace(results, places=validation.places_in(self.inputs.validation, results.places))

    def _randomised(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Seed each step's randomness, dropout and CutMix, by (seed, epoch, step, rank); nothing is saved."""
        seed, position, rank = self.config.random_seed, self.state.position, self.world.rank
        share, num_categories = self.inputs.recipe.cutmix, len(self.inputs.categories)
        for batch in batches:
            noise = derive_seed(seed, "noise", position.epoch, position.steps_done, rank)
            self._generator.manual_seed(noise)
            yield with_cutmix(batch, num_categories, share, noise) if share else batch

    def _leave_out(
        self, role: str, given: ImageDirectory, directory: ImageDirectory, rejected: dict[int, str]
    ) -> None:
        """Record the images that any process could not read in this pass, by their indices in `given`.

        Raises `InvalidDatasetError` if they are too many.
        """
        all_rejected = dict(self.world.gather(list(rejected.items())))
        _, records = without_bad_images(directory, all_rejected)
        if records:
            logger.warning(left_out(records))
        position = self.state.position
        position.bad_images += records
        position.left_out[role] += directory.places_in(given, sorted(all_rejected)).tolist()

    def _steps_left(self) -> int:
        """Steps left on images of the current size, if all epochs are trained."""
        position, framings = self.state.position, self.training_framings
        epochs = framings[position.epoch - 1 :].count(framings[position.epoch - 1])
        return epochs * self.steps_per_epoch - position.steps_done

    def _telling_what_fits(self, images: int) -> AbstractContextManager[None]:
        return explaining_out_of_memory(images, self._trained_at_once, self.min_share, self.config.batch_size)

    @property
    def _trained_at_once(self) -> int:
        return self._step.micro_batch or self.config.batch_size

    @property
    def _validated_at_once(self) -> int:
        trained, inputs = self._trained_at_once, self.inputs
        if self.world.device.type != "cuda":
            return trained
        return validated_at_once(trained, inputs.training_framing, inputs.framing)


def _generator_of(device: torch.device) -> torch.Generator:
    """The default generator of a device, from which layers such as dropout draw."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


def _steps_per_epoch(
    config: TrainConfig, inputs: TrainingInputs, framing: Framing, min_share: int, world: World
) -> int:
    """Steps of an epoch; each takes at least `min_share` images, the minimum at the size of `framing`."""
    if config.batch_size < min_share:
        raise ParameterError(
            out_of_range("Batch size", f"greater than {min_share - 1}", "--batch-size", config.batch_size)
            + f" At {framing.height} x {framing.width} px the batch norm of {inputs.model.architecture} needs"
            f" {min_share} images a step."
        )
    steps = num_training_steps(len(inputs.training), config.batch_size, min_share, world.size)
    if steps == 0:
        raise InvalidDatasetError(
            inputs.training.title,
            f"it has {len(inputs.training)} image; {inputs.model.architecture} needs {min_share} at"
            f" {framing.height} x {framing.width} px.",
        )
    return steps
