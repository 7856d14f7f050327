"""`fastai_tuned TRAINING HELD_OUT ARCHITECTURE WEIGHTS SIZE EPOCHS`: fastai's `fine_tune` of a
network of timm, with its defaults.

One of the epochs trains the new layers alone; a fifth of the images validate. Run it with a Python
that has fastai.
"""

import json
import operator
import sys
from typing import Any

import timm
from fastai.vision.all import (
    Callback,
    ImageDataLoaders,
    Normalize,
    Resize,
    accuracy,
    aug_transforms,
    get_image_files,
    vision_learner,
)
from safetensors.torch import load_file

from tests.benchmarks.contenders.cpu_time import cpu_s


class Epochs(Callback):  # type: ignore[misc]  # fastai has no types
    """Keeps the weights of each epoch, and when they were there."""

    def __init__(self) -> None:
        self.found: list[tuple[float, dict[str, Any]]] = []

    def after_epoch(self) -> None:
        ended_s = cpu_s()
        weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.found.append((ended_s, weights))


def main() -> None:
    """Train; print CPU seconds and accuracy after each epoch as JSON."""
    training, held_out, architecture, weights, *numbers = sys.argv[1:]
    size, epochs = map(int, numbers)
    configuration = timm.get_pretrained_cfg(architecture)
    normal = Normalize.from_stats(configuration.mean, configuration.std, cuda=False)
    images = ImageDataLoaders.from_folder(
        training,
        valid_pct=0.2,
        seed=0,
        bs=16,
        item_tfms=Resize(size),
        batch_tfms=[*aug_transforms(), normal],
    )
    learner = vision_learner(images, architecture, pretrained=False, metrics=accuracy)
    body = learner.model[0].model
    known = body.state_dict().keys()
    given = load_file(weights)
    body.load_state_dict({name: value for name, value in given.items() if name in known})
    kept = Epochs()
    with learner.no_bar(), learner.no_logging():
        learner.fine_tune(epochs - 1, cbs=kept)
        files = get_image_files(held_out)
        targets = [images.vocab.o2i[path.parent.name] for path in files]
        found = []
        for ended_s, state in kept.found:
            learner.model.load_state_dict(state)
            predicted, _ = learner.get_preds(dl=images.test_dl(files))
            labels = predicted.argmax(dim=1).tolist()
            num_right = sum(map(operator.eq, labels, targets))
            found.append((ended_s, num_right / len(targets)))
    print(json.dumps({"epochs": found}))


if __name__ == "__main__":
    main()
