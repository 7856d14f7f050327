"""The batches of a run, pass by pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from train_pytorch_model.data.batch import Batch, on_device
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset, training_dataset
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.epoch_plan import plan_training, plan_validation
from train_pytorch_model.data.features import FeatureCache
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import Caches, open_caches
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.state import State


class BatchLoader:
    """The batches of one pass, on the device, for a single iteration."""

    def __init__(self, num_batches: int, batches: Iterator[Batch], loader: Loader) -> None:
        self._num_batches = num_batches
        self._batches = batches
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        return self._batches

    def __len__(self) -> int:
        return self._num_batches

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for batches, in this pass and in all before it."""
        return self._loader.waited_s


class Batches:
    """Makes batches on the device, and begins a pass while the last ones before it are in use."""

    def __init__(
        self,
        engine: Engine,
        loader: Loader,
        caches: Caches,
        max_steps: int | None = None,
    ) -> None:
        """`max_steps` ends passes early.

        Where the caches have room for features of a frozen backbone, these stand in the batches
        instead of images.
        """
        plan = engine.plan
        self._engine = engine
        self._plan = plan
        self._loader = loader
        self._caches = caches
        self._max_steps = max_steps
        self.hashes = caches.hashes
        self._features: FeatureCache | None = None
        if caches.features is not None and plan.cache.views:
            self._features = FeatureCache(
                caches.features,
                plan.cache.views,
                plan.precision.dtype,
                engine.features,
                engine.features_at_once,
            )

    def training(self, state: State) -> BatchLoader:
        """Return the batches of the open epoch that are not trained yet, before its validation."""
        progress = state.progress
        current = self._training_plan(state, progress.epoch, progress.images_done)

        def following() -> EpochPlan:
            return self._validation_plan(state)

        return self._load(current, following)

    def validation(self, state: State, is_last: bool = False) -> BatchLoader:
        """Return this process's validation batches, before the next epoch unless `is_last`."""

        def following() -> EpochPlan | None:
            next_epoch = state.progress.epoch + 1
            if is_last or next_epoch > self._plan.config.epochs:
                return None
            return self._training_plan(state, next_epoch)

        return self._load(self._validation_plan(state), following)

    def _load(self, current: EpochPlan, following: Callable[[], EpochPlan | None]) -> BatchLoader:
        if self._features is None:
            batches = self._load_images(current, following)
        else:
            batches = self._features.batches(current, following, self._load_images)
        return BatchLoader(len(current.batches), batches, self._loader)

    def _load_images(
        self, current: EpochPlan, following: Callable[[], EpochPlan | None]
    ) -> Iterator[Batch]:
        return on_device(self._loader.batches(current, following), self._plan.world.device)

    def _training_plan(self, state: State, epoch: int, images_done: int = 0) -> EpochPlan:
        plan = self._plan
        images = state.images["training"]
        seed = plan.config.random_seed
        framing = plan.framings[epoch - 1]
        planned = plan_training(
            len(images),
            plan.config.batch_size,
            plan.min_local_batch,
            seed,
            epoch,
            plan.world.rank,
            plan.world.size,
            images_done,
        )
        planned = planned[: self._max_steps]
        preparation = for_training(plan.inputs.recipe, framing, plan.inputs.training_framing)
        dataset = training_dataset(images, preparation, seed, epoch, self._caches.training)
        key = f"training {epoch} of {len(images)} images, {len(planned)} batches"
        return EpochPlan(key, planned, dataset, framing)

    def _validation_plan(self, state: State) -> EpochPlan:
        plan = self._plan
        images = state.images["validation"]
        framing = plan.inputs.framing
        planned = plan_validation(
            len(images), self._engine.validated_at_once, plan.world.rank, plan.world.size
        )
        planned = planned[: self._max_steps]
        dataset = inference_dataset(images, framing, self._caches.validation)
        key = f"validation of {len(images)} images, {len(planned)} batches"
        return EpochPlan(key, planned, dataset, framing)


@contextmanager
def open_batches(
    engine: Engine, readers: Decoders | None, max_steps: int | None = None
) -> Iterator[Batches]:
    """Return the batches of a run, for a `with`; `readers` have no request yet."""
    world = engine.world
    with open_caches(engine.plan.cache, world) as caches:
        if readers is not None:
            readers.use_cache(caches.shared)
        with Loader(world.cores, readers) as loader:
            yield Batches(engine, loader, caches, max_steps)
