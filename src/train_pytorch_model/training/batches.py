"""The batches of a run, pass by pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from train_pytorch_model.data import batch
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset, training_dataset
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.epoch_plan import plan_training, plan_validation
from train_pytorch_model.data.features import KeptFeatures
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import Caches, open_caches
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.state import State


@dataclass(frozen=True)
class Reading:
    """The batches of one pass, to be read once."""

    num_batches: int
    batches: Iterator[Batch]
    loader: Loader  # which counts the seconds spent waiting for them


class Batches:
    """Makes batches on the device. While the last ones of a pass are in use, the next pass begins."""

    def __init__(
        self,
        engine: Engine,
        loader: Loader,
        caches: Caches,
        max_steps: int | None = None,
    ) -> None:
        """`max_steps` ends passes early; features, if there is room, stand in batches for images."""
        plan = engine.plan
        self._plan, self._engine = plan, engine
        self._loader, self._caches, self._max_steps = loader, caches, max_steps
        self.hashes = caches.hashes
        self._kept = None
        if caches.features is not None and plan.cache.views:
            dtype, at_once = plan.precision.dtype, engine.features_at_once
            self._kept = KeptFeatures(
                caches.features, plan.cache.views, dtype, engine.features, at_once
            )

    def training(self, state: State) -> Reading:
        """Return the batches that are left in the open epoch, before its validation."""
        progress = state.progress
        current = self._training_pass(state, progress.epoch, progress.images_done)
        return self._read(current, lambda: self._validation_pass(state))

    def validation(self, state: State, is_last: bool = False) -> Reading:
        """Return this process's validation batches, before the next epoch unless `is_last`."""

        def following() -> EpochPlan | None:
            epoch = state.progress.epoch + 1
            is_over = is_last or epoch > self._plan.config.epochs
            return None if is_over else self._training_pass(state, epoch)

        return self._read(self._validation_pass(state), following)

    def _read(self, current: EpochPlan, then: Callable[[], EpochPlan | None]) -> Reading:
        kept = self._kept
        part = kept.to_compute if kept else lambda given: given
        batches = self._loader.batches(
            part(current), lambda: part(after) if (after := then()) else None
        )
        batches = batch.on_device(batches, self._plan.world.device)
        return Reading(
            len(current.batches), kept.batches(current, batches) if kept else batches, self._loader
        )

    def _training_pass(self, state: State, epoch: int, images_done: int = 0) -> EpochPlan:
        plan, images = self._plan, state.images["training"]
        config, world = plan.config, plan.world
        framing, seed, least = plan.framings[epoch - 1], config.random_seed, plan.min_local_batch
        planned = plan_training(
            len(images), config.batch_size, least, seed, epoch, world.rank, world.size, images_done
        )[: self._max_steps]
        prepared = for_training(plan.inputs.recipe, framing, plan.inputs.training_framing)
        dataset = training_dataset(images, prepared, seed, epoch, self._caches.training)
        key = f"training {epoch} of {len(images)} images, {len(planned)} batches"
        return EpochPlan(key, planned, dataset, framing)

    def _validation_pass(self, state: State) -> EpochPlan:
        plan, images, framing = self._plan, state.images["validation"], self._plan.inputs.framing
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
    """Batches, for a `with`; `readers` have no request yet."""
    with open_caches(engine.plan.cache, engine.world) as caches:
        if readers is not None:
            readers.use_cache(caches.shared)
        with Loader(engine.world.cores, readers) as loader:
            yield Batches(engine, loader, caches, max_steps)
