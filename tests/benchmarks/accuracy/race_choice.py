"""What a race of networks chooses, against what is best on images that it has not seen.

    python -m tests.benchmarks.accuracy.race_choice --images DIR --candidates MODEL MODEL …

`DIR` has one folder per category, in one or more parts; a candidate is a model directory. Features
are computed once, and kept in `--features`. Each draw takes 200, 400, 700 or 1,000 of the images;
the others judge. Of each rule: in how many of 20 draws is its choice within one standard error of
the best candidate on the others, and how many points is it behind on average? A choice by lot is
the mean of the rows "always". "As many fresh images" is no rule, but the limit of what so many
images can tell: it takes the lowest loss on some of the others, by the very classifiers that the
rest of them judge.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.trainings import ALONE
from train_pytorch_model.data.pixel_decisions import decide_white_level
from train_pytorch_model.inference.features import FeatureExtractor
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.choice import FASTER, SURE, Entry, choose
from train_pytorch_model.quality.folds import stratified_folds
from train_pytorch_model.quality.paired_test import compare_hits
from train_pytorch_model.quality.solved_classifier import losses_of, out_of_fold, solve

SIZES = (200, 400, 700, 1000)
SIMILAR = 0.5  # standard errors of the difference in loss, of the rule before


@dataclass(frozen=True)
class Tried:
    """A candidate in a draw of N images, of which M others judge."""

    entry: Entry  # of the N images, out of fold
    losses: np.ndarray  # (M,)
    is_hit: np.ndarray  # (M,), bool


Rule = Callable[[Sequence[Tried]], int]


def main() -> None:
    """Print a table of the rules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path, nargs="+", required=True, help="parts of a data set")
    parser.add_argument("--candidates", type=Path, nargs="+", required=True)
    parser.add_argument("--features", type=Path, default=Path("features"), help="folder to keep")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    chosen = parser.parse_args()
    chosen.features.mkdir(exist_ok=True)
    features = {}
    seconds = {}
    for path in chosen.candidates:
        stored = _stored(path, chosen.images, chosen.features / f"{path.name}.npz")
        features[path.name] = stored["features"]
        seconds[path.name] = float(stored["seconds"])
        targets = stored["targets"]
    draws = []
    for number in range(chosen.draws):
        count = chosen.sizes[number % len(chosen.sizes)]
        draws.append(_draw(features, seconds, targets, count, number))
        print(f"\r{number + 1}", end="", flush=True)
    print("\n| rule | of 20 draws | points behind |\n|---|---|---|")
    for name, rule in _rules(list(features)).items():
        within, behind = np.mean([_judge(tried, rule(tried)) for tried in draws], axis=0)
        print(f"| {name} | {20 * within:.1f} | {100 * behind:.2f} |")
    within, behind = np.mean([_fresh(tried) for tried in draws], axis=0)
    print(f"| as many fresh images | {20 * within:.1f} | {100 * behind:.2f} |")


def _stored(model: Path, parts: Sequence[Path], path: Path) -> Mapping[str, np.ndarray]:
    """Return features (N, D) and targets (N,) of all parts, and the seconds that an image took."""
    if not path.exists():
        features = []
        targets = []
        seconds = 0.0
        for part in parts:
            inputs = decide_white_level(open_training_inputs(model, part, part, 1), ALONE)
            network = build_model(inputs.model, inputs.categories)
            extractor = FeatureExtractor(inputs.spec, network, ALONE)
            computed = extractor.features(inputs.training, np.arange(len(inputs.training)))
            features.append(computed.values)
            targets.append(inputs.training.class_indices)
            seconds += computed.seconds
        count = sum(map(len, targets))
        np.savez(
            path,
            features=np.concatenate(features),
            targets=np.concatenate(targets),
            seconds=seconds / count,
        )
    with np.load(path) as arrays:
        return dict(arrays)


def _draw(
    features: Mapping[str, np.ndarray],
    seconds: Mapping[str, float],
    targets: np.ndarray,
    count: int,
    number: int,
) -> list[Tried]:
    order = np.random.default_rng(100 + number).permutation(len(targets))
    drawn, others = order[:count], order[count:]
    folds = stratified_folds(targets[drawn], np.arange(count), number)
    num_classes = int(targets.max()) + 1
    tried = []
    for name, of_all in features.items():
        predicted = out_of_fold(of_all[drawn], targets[drawn], folds, num_classes)
        entry = Entry(
            name,
            1 / seconds[name],
            losses_of(predicted.logits, targets[drawn]),
            predicted.logits.argmax(axis=1) == targets[drawn],
        )
        solved = solve(of_all[drawn], targets[drawn], num_classes, predicted.strength)
        logits = solved.logits(of_all[others])
        is_hit = logits.argmax(axis=1) == targets[others]
        tried.append(Tried(entry, losses_of(logits, targets[others]), is_hit))
    return tried


def _rules(names: Sequence[str]) -> dict[str, Rule]:
    def taken(tried: Sequence[Tried]) -> int:
        entry, _ = choose([each.entry for each in tried])
        return [each.entry.name for each in tried].index(entry.name)

    def always(index: int) -> Rule:
        return lambda _: index

    return {
        "the program's": taken,
        "lowest loss": lambda tried: int(np.argmin([each.entry.loss for each in tried])),
        "most hits": lambda tried: int(np.argmax([each.entry.is_hit.mean() for each in tried])),
        "the fastest that McNemar's test does not tell from the lowest loss": _fastest_not_told,
        "the fastest, unless a slower one is surely better": _fastest_unless_worse,
        "the slowest, unless a faster one is surely better": _slowest_unless_worse,
        **{f"always {name}": always(index) for index, name in enumerate(names)},
    }


def _fastest_not_told(tried: Sequence[Tried]) -> int:
    """Choose as the program did before: the loss of a faster one had to be similar as well."""
    best = min(tried, key=lambda each: each.entry.loss).entry
    order = _fastest_first(tried)
    for index in order:
        entry = tried[index].entry
        is_faster = entry.images_per_second >= FASTER * best.images_per_second
        differences = entry.losses - best.losses
        is_similar = differences.mean() <= SIMILAR * _standard_error(differences)
        if is_faster and is_similar and not compare_hits(best.is_hit, entry.is_hit).is_telling:
            return index
    return [each.entry for each in tried].index(best)


def _fastest_unless_worse(tried: Sequence[Tried]) -> int:
    return _first_unless_worse(_fastest_first(tried), tried)


def _slowest_unless_worse(tried: Sequence[Tried]) -> int:
    return _first_unless_worse(_fastest_first(tried)[::-1], tried)


def _fastest_first(tried: Sequence[Tried]) -> list[int]:
    return sorted(range(len(tried)), key=lambda index: -tried[index].entry.images_per_second)


def _first_unless_worse(order: Sequence[int], tried: Sequence[Tried]) -> int:
    chosen, *others = order
    for index in others:
        differences = tried[chosen].entry.losses - tried[index].entry.losses
        if differences.mean() > SURE * _standard_error(differences):
            chosen = index
    return chosen


def _standard_error(values: np.ndarray) -> float:
    return float(values.std() / np.sqrt(len(values)))


def _judge(
    tried: Sequence[Tried], chosen: int, others: slice | np.ndarray = slice(None)
) -> tuple[bool, float]:
    """Return whether a choice is within a standard error of the best one, and how far behind."""
    accuracies = np.array([each.is_hit[others].mean() for each in tried])
    best = accuracies.max()
    error = np.sqrt(best * (1 - best) / len(tried[0].is_hit[others]))
    return accuracies[chosen] >= best - error, best - accuracies[chosen]


def _fresh(tried: Sequence[Tried]) -> tuple[bool, float]:
    count = len(tried[0].entry.losses)
    order = np.random.default_rng(0).permutation(len(tried[0].losses))
    chosen = int(np.argmin([each.losses[order[:count]].mean() for each in tried]))
    return _judge(tried, chosen, order[count:])


if __name__ == "__main__":
    main()
