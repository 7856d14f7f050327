"""In which order images are worth labels: a small network learns digits, 50 more at a time.

    python -m tests.benchmarks.data_quality.label_order

It starts with 50 labelled images of 1,000, and takes 5 x 50 others: at random, always the one least
similar to those before, or as `to_label.csv` and `review` rank them. Printed are the mean
accuracies on the other 797 images after every 50, and the spread of the last ones.
"""

import argparse
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from train_pytorch_model.quality.ranking import uncertain_and_unlike

NUM_IMAGES = 1000
ROUNDS = 5
PER_ROUND = 50
BATCH_SIZE = 16
Order = Callable[[np.ndarray, np.ndarray, np.random.Generator], Iterable[int]]


def main() -> None:
    """Print a line per order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    chosen = parser.parse_args()
    images, targets = load_digits(return_X_y=True)
    pictures = torch.tensor(images.reshape(-1, 1, 8, 8) / 8 - 1, dtype=torch.float32)
    for name, order in ORDERS.items():
        rows = [
            _learn(pictures, targets, order, seed, chosen.epochs) for seed in range(chosen.seeds)
        ]
        means = ", ".join(f"{mean:.3f}" for mean in np.mean(rows, axis=0))
        print(f"{name}: {means} (± {np.std(rows, axis=0)[-1]:.3f})", flush=True)


def _learn(
    pictures: torch.Tensor, targets: np.ndarray, order: Order, seed: int, epochs: int
) -> list[float]:
    """Return the accuracies on the other images, before the first round and after each."""
    drawn = np.random.default_rng(seed).permutation(len(targets))
    others = drawn[NUM_IMAGES:]
    known = drawn[:PER_ROUND]
    pool = drawn[PER_ROUND:NUM_IMAGES]
    random = np.random.default_rng(seed + 100)
    accuracies = []
    for _ in range(ROUNDS + 1):
        features, probabilities = _train(pictures, targets, known, seed, epochs)
        accuracies.append(float((probabilities[others].argmax(1) == targets[others]).mean()))
        two = np.sort(probabilities[pool], axis=1)[:, -2:]
        ranked = order(two[:, 1] - two[:, 0], features[pool], random)
        picked = pool[list(islice(ranked, PER_ROUND))]
        known = np.concatenate([known, picked])
        pool = np.setdiff1d(pool, picked)
    return accuracies


def _train(
    pictures: torch.Tensor, targets: np.ndarray, known: np.ndarray, seed: int, epochs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (N, F) and the probabilities (N, C) of all images."""
    torch.manual_seed(seed)
    backbone = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten()),
    )
    network = nn.Sequential(backbone, nn.Linear(256, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    labels = torch.tensor(targets[known])
    for _ in range(epochs):
        shuffled = torch.randperm(len(known))
        for start in range(0, len(known), BATCH_SIZE):
            batch = shuffled[start : start + BATCH_SIZE]
            if len(batch) > 1:  # batch normalization needs two
                loss = F.cross_entropy(network(pictures[known[batch]]), labels[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    network.eval()
    with torch.no_grad():
        features = backbone(pictures)
        probabilities = network[1](features).softmax(dim=1)
    return features.numpy(), probabilities.numpy()


def _at_random(margins: np.ndarray, _: np.ndarray, random: np.random.Generator) -> Iterable[int]:
    order: list[int] = random.permutation(len(margins)).tolist()
    return order


def _least_similar(
    margins: np.ndarray, features: np.ndarray, _: np.random.Generator
) -> Iterable[int]:
    """Yield the most uncertain image, then always the least similar one to those before."""
    certain = np.full(len(margins), 0.5)
    certain[margins.argmin()] = 0
    return uncertain_and_unlike(certain, features)


def _ranked(margins: np.ndarray, features: np.ndarray, _: np.random.Generator) -> Iterable[int]:
    return uncertain_and_unlike(margins, features)


ORDERS: dict[str, Order] = {
    "at random": _at_random,
    "the least similar": _least_similar,
    "uncertain and unlike": _ranked,
}


if __name__ == "__main__":
    main()
