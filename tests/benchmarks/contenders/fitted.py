"""`fitted TRAINING HELD_OUT OPTIONS…`: the program's `fit`, with the network of each epoch judged.

What its decoding processes compute counts when they end, and so for the last epoch.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.benchmarks.contenders.cpu_time import cpu_s

if TYPE_CHECKING:
    from torch import Tensor, nn

    from train_pytorch_model.training.state import State


def main() -> None:
    """Fit; print CPU seconds and accuracy after each epoch as JSON."""
    training, held_out, *options = sys.argv[1:]
    from train_pytorch_model.training import state as states

    found = []
    close_epoch = states.State.close_epoch

    def noted(state: "State", network: "nn.Module") -> None:
        close_epoch(state, network)
        found.append((cpu_s(), states.copy_to_cpu(network.state_dict())))

    with tempfile.TemporaryDirectory() as name:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{name}/mlflow.db"
        output = Path(name) / "model"
        command = ["train-pytorch-model", "fit", training, "--output", str(output), *options]
        from train_pytorch_model.__main__ import main as program

        with patch.object(sys, "argv", command), patch.object(states.State, "close_epoch", noted):
            program()
        ended_s = cpu_s()
        accuracies = judge(output, Path(held_out), [weights for _, weights in found])
    times_s = [*(closed_s for closed_s, _ in found[:-1]), ended_s]
    print(json.dumps({"epochs": list(zip(times_s, accuracies, strict=True))}))


def judge(model: Path, held_out: Path, networks: list[dict[str, "Tensor"]]) -> list[float]:
    """Return the share of images whose category each of these weights predicts."""
    import torch
    from PIL import Image

    from train_pytorch_model.image_classifier.classifier import ImageClassifier
    from train_pytorch_model.image_classifier.weights import write_state_dict
    from train_pytorch_model.inputs.scoring import open_trained_model

    _, spec = open_trained_model(model, None)
    files = sorted(path for path in held_out.glob("*/*") if path.is_file())
    targets = [spec.categories.index(path.parent.name) for path in files]
    accuracies = []
    for weights in networks:
        write_state_dict(model.parent / "weights", weights)
        classifier = ImageClassifier.load(spec, model.parent / "weights", torch.device("cpu"))
        images = (Image.open(path).convert("RGB") for path in files)
        predicted = classifier.classify(images).probabilities.argmax(axis=1)
        accuracies.append(float((predicted == targets).mean()))
    return accuracies


if __name__ == "__main__":
    main()
