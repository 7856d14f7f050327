"""`race`: which network suits these images, measured by solved classifiers of their features.

Each candidate is timed on a few images. What there is time for is decided then, once, and written
into the folder of the run, as are features: an interrupted race goes on and ends with the same
bits.
"""

import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
import torch

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.wording import bulleted, counted, parameter
from train_pytorch_model.data.pixel_decisions import decide_white_level
from train_pytorch_model.datasets.grouping import hashes_of_files
from train_pytorch_model.datasets.image_pool import ImagePool, pool_of
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.evaluation.calibration import fit_temperature
from train_pytorch_model.evaluation.likelihood import softmax
from train_pytorch_model.evaluation.metrics import confidence_interval, outcomes_of
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.race_record import Candidate, RaceArrays, RaceRecord
from train_pytorch_model.formats.reading import META, read_json
from train_pytorch_model.formats.run_folder import RACE_WORK, UNTRAINED
from train_pytorch_model.formats.run_lock import run_lock
from train_pytorch_model.formats.writing import write_durably
from train_pytorch_model.image_classifier.architectures import head_of
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.inference.features import IMAGES_AT_ONCE, FeatureExtractor
from train_pytorch_model.inputs.opening import CheckedImages, OpenedInputs, inputs_for
from train_pytorch_model.inputs.race_plan import (
    RacePlan,
    Speed,
    epochs_within,
    finishing_s,
    folds_s,
    plan_race,
    race_s,
    with_time_to_train,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import is_alone
from train_pytorch_model.machine.threads import choose_threads, fixed_threads
from train_pytorch_model.machine.time_limit import TIME_IS_UP, TimeLimit
from train_pytorch_model.networks import dry_runs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.publishing.raced_model import write_raced_model
from train_pytorch_model.quality.choice import Entry, choose, nested_hits
from train_pytorch_model.quality.near_duplicates import find_pairs, look_like_known
from train_pytorch_model.quality.perceptual_hash import read_image_hashes
from train_pytorch_model.quality.solved_classifier import (
    OutOfFold,
    losses_of,
    out_of_fold,
    solve,
)
from train_pytorch_model.stories.init_model import initialize
from train_pytorch_model.stories.race_candidates import PORT, Opened, Racer, open_candidates
from train_pytorch_model.training.precision import choose_precision

MORE_TIMED = 8 * IMAGES_AT_ONCE  # of a fast candidate
MAX_RACED = 20_000  # images: more tell no more about networks
LATEST = 0.65  # of the time; a candidate that would take the race beyond it is left out
FAMILIAR = 0.01  # of the images; a model that has learned from more has an unfair advantage
PLAN = "plan.json"
HASHES = "hashes.npy"


def race(
    options: FitOptions, checked: CheckedImages, target: Path, began_at: float
) -> ModelDirectory:
    """Return the model that wins, with its solved classifier beside its weights.

    It is written to `target`, in the folder of the run, unless it is there. The command began at
    the instant `began_at`, by `time.monotonic`. Raises `OutputDirectoryError`.
    """
    root = target.parent
    work = root / target.name.replace(UNTRAINED, RACE_WORK)
    if options.fresh and is_alone(os.environ):  # workers take what the first process has made
        for earlier in (target, work):
            shutil.rmtree(earlier, ignore_errors=True)
    if not (target / META).exists():
        # Not in the folder of the run: there it says that a training has begun.
        with run_lock(work, logger.info), _saying_that_it_goes_on():
            _Race(options, checked, work, began_at).run(target)
        shutil.rmtree(work, ignore_errors=True)
    return open_model_directory(target, PORT)


@contextmanager
def _saying_that_it_goes_on() -> Iterator[None]:
    """Say what an interruption in a `with` has not lost."""
    try:
        yield
    except KeyboardInterrupt:
        logger.info(
            "The race was interrupted: the same command goes on with what it has computed so far."
        )
        raise


def time_limit(record: RaceRecord, num_held_out: int, began_at: float) -> TimeLimit:
    """Return until when the winner may be fine-tuned, so that there is time to publish it."""
    if not record.epochs:
        return TIME_IS_UP
    speeds = {candidate.name: candidate.images_per_second for candidate in record.candidates}
    image_s = 1 / (speeds[record.chosen] or math.inf)
    return TimeLimit(began_at + 60 * record.minutes - finishing_s(image_s, num_held_out))


@dataclass(frozen=True)
class _Computed:
    """The features of a candidate."""

    racer: Racer
    speed: Speed
    features: np.ndarray  # (M, D), float32; NaN for what could not be read
    seconds: float  # that computing them took, perhaps in an earlier start
    megabytes: float  # of the network

    @property
    def is_known(self) -> np.ndarray:
        """Return (M,), bool: which images have features."""
        is_known: np.ndarray = np.isfinite(self.features).all(axis=1)
        return is_known


@dataclass(frozen=True)
class _Measured:
    """What a candidate predicts out of fold."""

    computed: _Computed
    indices: np.ndarray  # (M,): of the images in the pool
    features: np.ndarray  # (M, D), float32
    folds: np.ndarray  # (M,)
    predicted: OutOfFold
    losses: np.ndarray  # (M,)
    is_hit: np.ndarray  # (M,), bool

    @property
    def entry(self) -> Entry:
        speed = self.computed.speed
        return Entry(speed.name, 1 / speed.image_s, self.losses, self.is_hit)

    @property
    def row(self) -> Candidate:
        """Return its row of the table."""
        computed = self.computed
        accuracy = float(self.is_hit.mean())
        return Candidate(
            name=computed.speed.name,
            licence=computed.racer.licence,
            accuracy=accuracy,
            accuracy_interval=confidence_interval(accuracy, len(self.is_hit)),
            loss=float(self.losses.mean()),
            seconds=computed.seconds,
            images_per_second=1 / computed.speed.image_s,
            megabytes=computed.megabytes,
        )


class _Race:
    """A race that has begun."""

    def __init__(
        self, options: FitOptions, checked: CheckedImages, work: Path, began_at: float
    ) -> None:
        assert options.minutes is not None
        self._options = options
        self._checked = checked
        self._work = work
        self._began_at = began_at
        self._seconds = 60 * options.minutes
        self._world = World(0, 1, 0, 1, best_device())
        self._began = CoreTimes.now()

    def run(self, target: Path) -> None:
        """Race, and write the winner."""
        opened = self._open()
        pool = self._open_pool()
        plan = self._plan(opened, pool)
        torch.set_num_threads(plan.threads)
        racers = {racer.name: racer for racer in opened.racers}
        raced = pool.sample(min(plan.num_raced, MAX_RACED))
        computed: list[_Computed] = []
        for speed in plan.candidates:
            if computed and self._would_be_late(speed, len(raced), len(computed)):
                plan = msgspec.structs.replace(plan, num_candidates=len(computed))
                self._write_plan(plan)
                break
            computed.append(self._compute(racers[speed.name], speed, pool, raced))
        measured = _measure(computed, raced, pool)

        entries = [each.entry for each in measured]
        entry, reason = choose(entries)
        winner = measured[entries.index(entry)]
        plan = with_time_to_train(plan, lambda each: self._epochs(each, winner.computed, pool))
        solved = pool.sample(min(plan.num_solved, MAX_RACED))
        final = winner
        if len(solved) > len(raced):
            racer = winner.computed.racer
            of_all = self._compute(racer, winner.computed.speed, pool, solved)
            [final] = _measure([of_all], solved, pool)
        self._conclude(target, plan, measured, final, reason, pool)

    def _open(self) -> Opened:
        """Return the candidates whose weights are here; a network from scratch if there is none."""
        opened = open_candidates(self._options, self._work)
        if opened.racers:
            return opened
        logger.warning(
            "No candidate's weights are here or can be downloaded; training from scratch, which"
            f" takes many more images and time. {parameter('candidates')} names model directories,"
            f" {parameter('weights_file')} weights from elsewhere."
        )
        path = self._work / "from-scratch"
        if not (path / META).exists():
            scratch = replace(self._options, pretrained=False, weights=None, weights_file=None)
            initialize(scratch, self._options.parameters.random_seed, path, shows_download=False)
        model = open_model_directory(path, PORT)
        name = f"{self._options.architecture} from scratch"
        return Opened([Racer(name, model, "")], opened.left_out)

    def _open_pool(self) -> ImagePool:
        checked = self._checked
        path = self._work / HASHES
        if path.exists():
            hashes = np.load(path, allow_pickle=False)
        else:
            directories = (checked.training, checked.validation)
            files = [images.path(index) for images in directories for index in range(len(images))]
            hashes = hashes_of_files(files)
            content = BytesIO()
            np.save(content, hashes)
            write_durably(path, content.getvalue())
        seed = self._options.parameters.random_seed
        return pool_of(checked, hashes, self._options.group_by or "", seed)

    def _plan(self, opened: Opened, pool: ImagePool) -> RacePlan:
        """Time the candidates on a few images, and decide what there is time for; once."""
        path = self._work / PLAN
        if path.exists():
            logger.info("The race of networks goes on.")
            return read_json(path, RacePlan)
        names = ", ".join(racer.name for racer in opened.racers)
        logger.info(f"A race of networks on {counted(len(pool), 'image', 'images')}: {names}")
        threads = fixed_threads(os.environ) or choose_threads(
            self._world.cores, self._began, CoreTimes.now()
        )
        torch.set_num_threads(threads.count)
        speeds = []
        left_out = dict(opened.left_out)
        for racer in opened.racers:
            speed = self._time(racer, pool)
            if isinstance(speed, str):
                left_out[racer.name] = speed
            else:
                speeds.append(speed)
        if not speeds:
            problems = [f"{name}: {reason}" for name, reason in left_out.items()]
            raise ParameterError(
                f"{parameter('candidates')}: none of them can be taken:{bulleted(problems)}"
            )
        plan = plan_race(
            speeds,
            len(pool),
            len(pool.categories),
            self._seconds,
            time.monotonic() - self._began_at,
            threads.count,
            left_out,
        )
        self._write_plan(plan)
        return plan

    def _write_plan(self, plan: RacePlan) -> None:
        write_durably(self._work / PLAN, msgspec.json.encode(plan))

    def _would_be_late(self, speed: Speed, count: int, num_computed: int) -> bool:
        """Return whether another candidate on so many images, and then all folds, take too long."""
        elapsed_s = time.monotonic() - self._began_at
        solved_s = (num_computed + 1) * folds_s(len(self._checked.training.categories))
        return elapsed_s + count * (speed.image_s + solved_s) > LATEST * self._seconds

    def _inputs(self, racer: Racer) -> OpenedInputs:
        epochs = self._options.parameters.epochs
        return decide_white_level(inputs_for(racer.model, self._checked, epochs), self._world)

    def _time(self, racer: Racer, pool: ImagePool) -> Speed | str:
        """Return the speed of a candidate, or why it cannot take part."""
        known = read_image_hashes(racer.model.root)
        pairs = find_pairs(np.concatenate([known, pool.hashes]), len(known))
        num_familiar = int(look_like_known(pairs, len(known), len(known) + len(pool)).sum())
        if num_familiar > FAMILIAR * len(pool):
            return f"it has learned from {num_familiar:,} of these images"
        inputs = self._inputs(racer)
        framing = inputs.framing
        network = build_model(racer.model, inputs.categories)
        head = head_of(racer.model.architecture, network)
        if not dry_runs.width_of_features(network, head, framing.height, framing.width):
            return "its last layer does not get a vector of features"
        extractor = FeatureExtractor(inputs.spec, network, self._world)
        few = evenly_spaced(pool.num_training, IMAGES_AT_ONCE)
        more = evenly_spaced(pool.num_training, MORE_TIMED)
        image_s = extractor.seconds_per_image(pool.checked.training, few, more)
        return Speed(racer.name, image_s)

    def _compute(
        self, racer: Racer, speed: Speed, pool: ImagePool, indices: np.ndarray
    ) -> _Computed:
        """Return the features of images, computed unless an earlier start has done so."""
        name = re.sub(r"\W", "-", racer.name)
        path = self._work / f"features-{name}-{len(indices)}.npz"
        if not path.exists():
            inputs = self._inputs(racer)
            network = build_model(racer.model, inputs.categories)
            size = sum(value.nbytes for value in network.state_dict().values()) / 1e6
            extractor = FeatureExtractor(inputs.spec, network, self._world)
            features, seconds = _features_of(extractor, racer.name, pool, indices)
            content = BytesIO()
            np.savez(content, features=features, seconds=seconds, megabytes=size)
            write_durably(path, content.getvalue())
        with np.load(path, allow_pickle=False) as stored:
            features = stored["features"]
            facts = float(stored["seconds"]), float(stored["megabytes"])
        return _Computed(racer, speed, features, *facts)

    def _conclude(
        self,
        target: Path,
        plan: RacePlan,
        measured: Sequence[_Measured],
        final: _Measured,
        reason: str,
        pool: ImagePool,
    ) -> None:
        """Write the winner with its solved classifier, and what the race has found out."""
        num_classes = len(pool.categories)
        logits = final.predicted.logits
        targets = pool.targets[final.indices]
        outcomes = outcomes_of(targets, softmax(logits))
        temperature = fit_temperature(logits.astype(np.float32), outcomes).value
        probabilities = np.full((len(pool), num_classes), np.nan)
        probabilities[final.indices] = softmax(logits / temperature)
        is_training = final.indices < pool.num_training
        solved = solve(
            final.features[is_training],
            targets[is_training],
            num_classes,
            final.predicted.strength,
        )
        hits = nested_hits(
            [each.is_hit for each in measured],
            [each.predicted.losses_without for each in measured],
            measured[0].folds,
        )
        accuracy = float(hits.mean())
        racer = final.computed.racer
        record = RaceRecord(
            minutes=self._seconds / 60,
            candidates=(*(each.row for each in measured), *_rows_of_others(plan, measured)),
            chosen=racer.name,
            reason=reason,
            images=len(hits),
            all_images=len(pool),
            accuracy=accuracy,
            accuracy_interval=confidence_interval(accuracy, len(hits)),
            strength=final.predicted.strength,
            temperature=temperature,
            epochs=self._epochs(plan, final.computed, pool),
        )
        arrays = RaceArrays(solved.weight / temperature, solved.bias / temperature, probabilities)
        write_raced_model(target, racer.model, record, arrays)

    def _epochs(self, plan: RacePlan, winner: _Computed, pool: ImagePool) -> int:
        """Return for how many epochs there is time, by the plan: the same after an interruption."""
        recipe = winner.racer.model.recipe
        if recipe.freeze_backbone:  # then nothing is left to train
            return 0
        precision = choose_precision(recipe.precision, self._world.device)
        speed = winner.speed
        num_validation = len(pool) - pool.num_training
        before_s = plan.elapsed_s + race_s(plan, len(pool.categories), speed)
        after_s = finishing_s(speed.image_s, 2 * num_validation)
        return epochs_within(
            self._seconds - before_s - after_s,
            speed.image_s,
            pool.num_training,
            num_validation,
            is_mixed=precision.dtype != torch.float32,
            most=self._options.parameters.epochs,
        )


def _features_of(
    extractor: FeatureExtractor, title: str, pool: ImagePool, indices: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the features (M, D) of the images at `indices`, and the seconds that took."""
    is_training = indices < pool.num_training
    parts = (
        (pool.checked.training, indices[is_training]),
        (pool.checked.validation, indices[~is_training] - pool.num_training),
    )
    with progress_bar(len(indices), title) as bar:
        computed = [
            extractor.features(images, of_part, bar.advance)
            for images, of_part in parts
            if len(of_part)
        ]
    values = np.concatenate([part.values for part in computed])
    return values, sum(part.seconds for part in computed)


def _measure(
    computed: Sequence[_Computed], indices: np.ndarray, pool: ImagePool
) -> list[_Measured]:
    """Return what candidates predict out of fold of the images that all of them know.

    A candidate without finite features is left out. Raises `InvalidModelDirectoryError` if no
    candidate has any.
    """
    usable = [each for each in computed if each.is_known.any()]
    if not usable:
        model = computed[0].racer.model
        raise model.error("its weights give features that are not finite.", "Name another one.")
    is_known = np.logical_and.reduce([each.is_known for each in usable])
    known = indices[is_known]
    targets = pool.targets[known]
    folds = pool.folds(known)
    measured = []
    for each in usable:
        features = each.features[is_known]
        predicted = out_of_fold(features, targets, folds, len(pool.categories))
        measured.append(
            _Measured(
                computed=each,
                indices=known,
                features=features,
                folds=folds,
                predicted=predicted,
                losses=losses_of(predicted.logits, targets),
                is_hit=predicted.logits.argmax(axis=1) == targets,
            )
        )
    return measured


def _rows_of_others(plan: RacePlan, measured: Sequence[_Measured]) -> Iterator[Candidate]:
    """Yield the rows of candidates that were left out."""
    names = {each.computed.speed.name for each in measured}
    for speed in plan.speeds:
        if speed.name not in names:
            yield Candidate(
                name=speed.name,
                images_per_second=1 / speed.image_s,
                remark="left out: too slow for the time",
            )
    for name, reason in plan.left_out.items():
        yield Candidate(name=name, remark=f"left out: {reason}")
