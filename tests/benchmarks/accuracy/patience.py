"""Accuracy lost to early stopping: curves of full trainings, replayed with less patience."""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from train_pytorch_model.training.state import patience_spent

PATIENCES = (1, 2, 3, 4, 5)


def stopping_epoch(losses: Sequence[float], patience: int) -> int:
    """Return the epoch after which training stops, counted from 1."""
    epochs = range(1, len(losses) + 1)
    return next((n for n in epochs if patience_spent(losses[:n]) >= patience), len(losses))


def main() -> None:
    """Print epochs trained and accuracy given up, for each recorded contender and patience."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "records",
        type=Path,
        nargs="+",
        help="files written by --record, of trainings with a high --patience",
    )
    curves = defaultdict(list)
    for path in parser.parse_args().records:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            key, result = record["key"], record["result"]
            told = ("images", "per_category", "categories", "weights", "epochs")
            name = ", ".join(str(key[what]) for what in told) + f" epochs, {result['contender']}"
            curves[name].append((result["curve"], result["curve_top1"]))
    print("| | seeds | patience | epochs | top-1 of the best epoch, % | given up, points |")
    print("|---|---|---|---|---|---|")
    for name, own in curves.items():
        whole = [_kept(losses, top1, len(losses)) for losses, top1 in own]
        for patience in PATIENCES:
            stops = [stopping_epoch(losses, patience) for losses, _ in own]
            kept = [
                _kept(losses, top1, stop) for (losses, top1), stop in zip(own, stops, strict=True)
            ]
            given_up = statistics.mean(full - now for full, now in zip(whole, kept, strict=True))
            print(
                f"| {name} | {len(own)} | {patience} | {statistics.mean(stops):.1f}"
                f" | {100 * statistics.mean(kept):.1f} | {100 * given_up:.1f} |"
            )


def _kept(losses: Sequence[float], top1: Sequence[float], epochs: int) -> float:
    """Return the top-1 accuracy of the epoch with the lowest loss among the first `epochs`, which
    is kept.
    """
    best = min(range(epochs), key=lambda epoch: losses[epoch])
    return top1[best]


if __name__ == "__main__":
    main()
