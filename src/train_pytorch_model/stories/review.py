"""`review`: a page of the images that most need a decision of a person, most useful first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.correcting import Corrections
from train_pytorch_model.datasets.grouping import connect
from train_pytorch_model.datasets.reviewed_images import ReviewedImages
from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.calibration import MIN_IMAGES
from train_pytorch_model.evaluation.label_noise import fit_label_noise
from train_pytorch_model.formats.corrections import Correction
from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.formats.reading import MalformedFileError, is_inner_path, sha256_of
from train_pytorch_model.image_classifier.predictions import UnknownError, read_threshold
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.inference.predict import predict
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.folds import NUM_FOLDS, stratified_folds
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.review_order import (
    SUSPECT,
    TWIN,
    UNLIKE,
    Judged,
    Ranked,
    rank_images,
)
from train_pytorch_model.quality.review_order import (
    UNLABELLED as WITHOUT_CATEGORY,
)
from train_pytorch_model.quality.solved_classifier import solve
from train_pytorch_model.quality.suspects import best_others, suspects_in
from train_pytorch_model.quality.to_label import MostUncertain
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.pictures import thumbnail
from train_pytorch_model.reports.review_page import (
    MAX_PICTURE_BYTES,
    NUM_CHOICES,
    Item,
    Review,
    render_review,
)

SIDE = 320  # px of a picture, about 15 kB
NUM_EXPLAINED = 100  # items with a heat map, for each of which the network runs back and forth
MAX_SOLVED = 20_000  # labelled images that are predicted out of fold, in about a minute
STRENGTH = 0.003  # of the solved classifiers
KNOWN_FRACTION = 0.999  # of validation images, which are like the training images
TINY = 1e-12


@dataclass(frozen=True)
class ReviewInputs:
    """What is reviewed."""

    scoring: ScoringInputs  # all readable images, without categories
    reviewed: ReviewedImages  # the same and unreadable ones, with their categories
    earlier: Corrections | None  # decisions that were made before
    size: int  # images on the page, at most
    report: str  # the address of the report on the training, relative to the page; may be empty


@dataclass(frozen=True)
class _Predicted:
    """What the model says of N images, and what it sees in them."""

    indices: np.ndarray  # (N,), int64: of the readable images
    probabilities: np.ndarray  # (N, C), float32
    features: np.ndarray  # (N, F), float32
    energies: np.ndarray  # (N,)
    hashes: np.ndarray  # (N, 16), uint8


def review(inputs: ReviewInputs, world: World) -> str:
    """Return the page. Raises `InvalidModelDirectoryError` for weights that do not fit."""
    predicted = _predict(inputs.scoring, world)
    images = inputs.scoring.images
    rows = images.rows[predicted.indices]
    names = [images.file_names[index] for index in predicted.indices.tolist()]
    decided = _decided(inputs)
    class_indices = _with_decisions(inputs.reviewed, rows, names, decided)
    judged = _judge(inputs, predicted, names, class_indices)
    is_open = np.array([name not in decided for name in names], bool)
    every = [one for one in rank_images(judged, len(names)) if is_open[one.index]]
    ranked = every[: inputs.size]
    items = list(_items(inputs, world, predicted, names, class_indices, ranked))
    shown = ranked[: len(items)]
    expected = sum(one.wrong for one in shown if one.kind in (SUSPECT, TWIN))
    logger.info(_summary(shown, expected))
    earlier = [] if inputs.earlier is None else list(inputs.earlier.rows)
    return render_review(
        Review(
            spec=inputs.scoring.spec,
            dataset_name=images.name,
            num_images=len(names),
            categories=inputs.reviewed.categories,
            items=items,
            earlier=earlier,
            expected_wrong=round(expected),
            report=inputs.report,
            num_left=len(every) - len(items),
        )
    )


def _predict(inputs: ScoringInputs, world: World) -> _Predicted:
    batches = predict(inputs, "Reviewing", world, hashed=True)
    filled = [batch for batch in batches if len(batch.indices)]
    return _Predicted(
        np.concatenate([batch.indices for batch in filled]),
        np.concatenate([batch.probabilities.astype(np.float32) for batch in filled]),
        np.concatenate([batch.features for batch in filled]),
        np.concatenate([batch.energies for batch in filled]),
        np.concatenate([batch.hashes for batch in filled]),
    )


def decided_categories(earlier: Corrections | None) -> list[str]:
    """Return the categories that were decided on."""
    rows = () if earlier is None else earlier.rows
    return [row.category for row in rows if row.category is not None]


def _decided(inputs: ReviewInputs) -> dict[str, Correction]:
    """Return the earlier decisions by the names of their files, which still have that content."""
    rows = () if inputs.earlier is None else inputs.earlier.rows
    root = inputs.scoring.images.root
    return {
        row.file: row
        for row in rows
        if is_inner_path(row.file) and row.sha256 in ("", _sha256(root / row.file))
    }


def _with_decisions(
    reviewed: ReviewedImages,
    rows: np.ndarray,
    names: Sequence[str],
    decided: Mapping[str, Correction],
) -> np.ndarray:
    """Return the class indices (N,), int64, with the categories that were decided on."""
    class_indices: np.ndarray = reviewed.class_indices[rows].copy()
    index_of = {comparable(name): index for index, name in enumerate(reviewed.categories)}
    for position, name in enumerate(names):
        row = decided.get(name)
        if row is not None and row.category is not None:
            given = class_indices[position]
            class_indices[position] = index_of.get(comparable(row.category), given)
    return class_indices


def _judge(
    inputs: ReviewInputs, predicted: _Predicted, names: Sequence[str], class_indices: np.ndarray
) -> Judged:
    """Return what is known about each image."""
    categories = inputs.reviewed.categories
    index_of = {comparable(name): index for index, name in enumerate(categories)}
    of_model = [index_of[comparable(name)] for name in inputs.scoring.spec.categories]
    logits = np.full((len(names), len(categories)), np.log(TINY))
    logits[:, of_model] = np.log(np.maximum(predicted.probabilities, TINY))
    labelled = np.flatnonzero(class_indices != UNLABELLED)
    targets = class_indices[labelled]
    if _can_be_solved(targets):
        groups = connect(len(labelled), find_pairs(predicted.hashes[labelled]).images)
        logits[labelled] = _out_of_fold(
            predicted.features[labelled], targets, groups, len(categories)
        )
    noise = fit_label_noise(logits[labelled], targets)
    wrong = np.zeros(len(names))
    wrong[labelled] = noise.wrong_probabilities(logits[labelled], targets)
    _add_suspects(wrong, inputs, names, class_indices)
    of_label = np.ones(len(names))
    of_label[labelled] = noise.label_probabilities(logits[labelled], targets)
    proposed = logits.argmax(axis=1)
    if len(categories) > 1:
        proposed[labelled] = best_others(logits[labelled], targets)
    is_doubted = np.zeros(len(names), bool)
    is_doubted[labelled] = logits[labelled, proposed[labelled]] > logits[labelled, targets]
    return Judged(
        class_indices=class_indices,
        proposed=proposed,
        wrong=wrong,
        label_probabilities=of_label,
        is_doubted=is_doubted,
        energies=predicted.energies,
        max_energy=_max_energy(inputs.scoring.model.root),
        contradictions=_contradictions(predicted.hashes, class_indices),
        to_label=_to_label(predicted, class_indices, inputs.size),
    )


def _can_be_solved(targets: np.ndarray) -> bool:
    return MIN_IMAGES <= len(targets) <= MAX_SOLVED and len(np.unique(targets)) > 1


def _out_of_fold(
    features: np.ndarray, targets: np.ndarray, groups: np.ndarray, num_classes: int
) -> np.ndarray:
    """Return logits (N, C) by classifiers that have not learned from an image or its twins.

    What the network says of an image that it was trained on says little about its label.
    """
    folds = stratified_folds(targets, groups, seed=1)
    logits = np.empty((len(targets), num_classes))
    with progress_bar(NUM_FOLDS, "Judging") as bar:
        for fold in np.unique(folds).tolist():
            is_here = folds == fold
            solved = solve(features[~is_here], targets[~is_here], num_classes, STRENGTH)
            logits[is_here] = solved.logits(features[is_here])
            bar.advance()
    return logits


def _add_suspects(
    wrong: np.ndarray, inputs: ReviewInputs, names: Sequence[str], class_indices: np.ndarray
) -> None:
    """Let images count as suspects that training has suspected, with the same category."""
    categories = inputs.reviewed.categories
    try:
        suspects = suspects_in(inputs.scoring.model.root)
    except MalformedFileError as error:
        logger.warning(f"What training has suspected is not used: {error}")
        return
    given = {suspect.file: suspect for suspect in suspects}
    for position, name in enumerate(names):
        suspect = given.get(name)
        class_index = int(class_indices[position])
        if suspect and class_index >= 0 and suspect.given == categories[class_index]:
            wrong[position] = max(wrong[position], suspect.wrong)


def _max_energy(model: Path) -> float:
    """Return above what an image is unlike those of the training; infinite if that is unknown."""
    try:
        return read_threshold(model, KNOWN_FRACTION)
    except UnknownError:
        return float("inf")


def _contradictions(hashes: np.ndarray, class_indices: np.ndarray) -> np.ndarray:
    """Return (P, 2), int64: the pairs that look alike and have different categories."""
    pairs = find_pairs(hashes).images
    one, other = class_indices[pairs].T
    differ = (one != other) & (one != UNLABELLED) & (other != UNLABELLED)
    contradicting: np.ndarray = pairs[differ]
    return contradicting


def _to_label(predicted: _Predicted, class_indices: np.ndarray, size: int) -> list[int]:
    """Return images without a category: the most uncertain ones, each unlike those before."""
    without = np.flatnonzero(class_indices == UNLABELLED)
    uncertain = MostUncertain(2 * size)
    if len(without) and predicted.probabilities.shape[1] > 1:
        uncertain.add(without, predicted.probabilities[without], predicted.features[without])
    return [candidate.index for candidate in uncertain.ranked()]


def _items(
    inputs: ReviewInputs,
    world: World,
    predicted: _Predicted,
    names: Sequence[str],
    class_indices: np.ndarray,
    ranked: Sequence[Ranked],
) -> Iterator[Item]:
    """Yield what the page shows, until its pictures take `MAX_PICTURE_BYTES`."""
    categories = inputs.reviewed.categories
    images = inputs.scoring.images
    colours = inputs.scoring.spec.framing.colours
    heats = _heats(inputs, world, predicted, ranked)
    num_bytes = 0

    def name_of(class_index: int) -> str:
        return "" if class_index < 0 else categories[class_index]

    with progress_bar(len(ranked), "Pictures") as bar:
        for one, heat in zip(ranked, heats, strict=True):
            index = int(predicted.indices[one.index])
            twin_picture = ""
            if one.twin >= 0:
                path = images.path(int(predicted.indices[one.twin]))
                twin_picture = thumbnail(path, colours, SIDE)
            picture = thumbnail(images.path(index), colours, SIDE)
            num_bytes += len(picture) + len(twin_picture) + (len(heat.picture) if heat else 0)
            if num_bytes > MAX_PICTURE_BYTES:
                return
            first, second = _first_two(predicted.probabilities[one.index])
            yield Item(
                file=names[one.index],
                sha256=_sha256(images.path(index)),
                kind=one.kind,
                given=name_of(int(class_indices[one.index])),
                proposed=name_of(one.proposed),
                why=_why(one, first, second),
                choices=_choices(inputs, predicted.probabilities[one.index]),
                picture=picture,
                heat=heat,
                twin_file=names[one.twin] if one.twin >= 0 else "",
                twin_category=name_of(int(class_indices[one.twin])) if one.twin >= 0 else "",
                twin_picture=twin_picture,
            )
            bar.advance()


def _heats(
    inputs: ReviewInputs, world: World, predicted: _Predicted, ranked: Sequence[Ranked]
) -> list[Heat | None]:
    """Return what spoke for the predictions of the first items, and None for the others."""
    first = [one.index for one in ranked[:NUM_EXPLAINED]]
    if not first:
        return []
    spec = inputs.scoring.spec
    network = build_model(inputs.scoring.model, spec.categories).to(world.device)
    heats = explain(network, spec, inputs.scoring.images, predicted.indices[first])
    return [*heats, *[None] * (len(ranked) - len(first))]


def _sha256(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:  # deleted since it was predicted
        return ""


def _first_two(probabilities: np.ndarray) -> tuple[float, float]:
    ordered = np.sort(probabilities)[::-1]
    return float(ordered[0]), float(ordered[1]) if len(ordered) > 1 else 0.0


def _choices(inputs: ReviewInputs, probabilities: np.ndarray) -> list[str]:
    """Return the most probable categories of the model, the first one first."""
    order = np.argsort(-probabilities, kind="stable")[:NUM_CHOICES]
    return [inputs.scoring.spec.categories[index] for index in order.tolist()]


def _why(one: Ranked, first: float, second: float) -> str:
    """Return why an image needs a decision."""
    if one.kind == SUSPECT:
        return f"The category is wrong with a probability of {one.wrong:.0%}."
    if one.kind == TWIN:
        return "It looks like an image of another category: one of the two is wrong."
    if one.kind == WITHOUT_CATEGORY:
        return f"It has no category; the model gives the first two {first:.0%} and {second:.0%}."
    if one.kind == UNLIKE:
        return (
            "It is unlike the images that the model was trained on: perhaps of no category, or of a"
            " new one."
        )
    return "The model prefers another category; such labels are often right."


def _summary(ranked: Sequence[Ranked], expected: float) -> str:
    """Return how many images are on the page, and what they are."""
    if not ranked:
        return "No image needs a decision."
    num_wrong = sum(one.kind in (SUSPECT, TWIN) for one in ranked)
    text = f"{counted(len(ranked), 'image', 'images')} to decide on"
    if num_wrong:
        text += f"; the first {num_wrong:,} probably have a wrong category, about {expected:.0f} do"
    return f"{text}."
