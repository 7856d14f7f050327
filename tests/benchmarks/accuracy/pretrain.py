"""Make weights to fine-tune where none can be downloaded: train on other categories or other
images.
"""

from pathlib import Path

import torch

from tests.benchmarks.accuracy import ours
from tests.benchmarks.accuracy.comparison import arguments, setting_of
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.spec import IMAGENET_MEAN, IMAGENET_STD


def main() -> None:
    """Train with the defaults, except ImageNet's normalization, and save the best epoch."""
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, required=True, help="where to save the state dict")
    chosen = parser.parse_args()
    with setting_of(chosen, seed=1) as setting:
        training = ours.make_training(setting, Recipe(mean=IMAGENET_MEAN, std=IMAGENET_STD))
        for epoch in ours.epochs_of(training, training.engine.network):
            print(f"top-1 {epoch.hits.mean():.1%}, loss {epoch.losses.mean():.3f}", flush=True)
        torch.save(training.state.best.weights, chosen.output)


if __name__ == "__main__":
    main()
