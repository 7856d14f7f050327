"""`ours.py UNTRAINED IMAGES BATCH EPOCHS`: the program's command line; `--synthetic`: its step
alone.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch


def main() -> None:
    """Print images per second of each epoch as JSON."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--synthetic"]
    untrained, images = map(Path, arguments[:2])
    batch_size, epochs = map(int, arguments[2:])
    if "--synthetic" in sys.argv:
        print(json.dumps({"rates": synthetic_rates(untrained, images, batch_size, epochs)}))
        return
    # The same for all processes of one torchrun.
    folder = Path(tempfile.gettempdir()) / f"train_pytorch_model-benchmark-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    train(untrained, images, folder / "trained", batch_size, epochs)
    if os.environ.get("RANK", "0") != "0":
        return
    lines = (folder / "trained" / "metrics.jsonl").read_text().splitlines()
    shutil.rmtree(folder)
    rates = [json.loads(line)["Train images per second"] for line in lines]
    print(json.dumps({"rates": rates}))


def train(untrained: Path, images: Path, output: Path, batch_size: int, epochs: int) -> None:
    """Run the program's `train` command in this process."""
    from train_pytorch_model.__main__ import main as program

    command = [
        "train-pytorch-model",
        "train",
        *("--untrained-model", str(untrained)),
        *("--training-dataset", str(images)),
        *("--validation-dataset", str(images)),
        *("--trained-model", str(output)),
        *("--batch-size", str(batch_size)),
        *("--epochs", str(epochs)),
        *("--patience", str(epochs)),
    ]
    with patch.object(sys, "argv", command):
        program()


def synthetic_rates(untrained: Path, images: Path, batch_size: int, epochs: int) -> list[float]:
    """Return images per second of epochs that repeat one batch per image size, made beforehand."""
    from train_pytorch_model.machine.threads import OPENMP, short_switch_interval

    for name, value in OPENMP.items():  # as the program does
        os.environ.setdefault(name, value)
    import torch

    from tests.trainings import start_training
    from train_pytorch_model.config.train_config import TrainConfig
    from train_pytorch_model.data.batch import Batch
    from train_pytorch_model.data.dataset import EpochPlan
    from train_pytorch_model.data.loader import Loader
    from train_pytorch_model.data.open_caches import NO_CACHES
    from train_pytorch_model.distributed.rendezvous import join_world
    from train_pytorch_model.inputs.opening import open_training_inputs
    from train_pytorch_model.machine.memory import keep_freed_memory
    from train_pytorch_model.training.batches import Batches

    class OneBatch(Loader):
        """Yields the ready batch of the pass's image size, once per planned batch."""

        def batches(self, current: EpochPlan, following: object = None) -> Iterator[Batch]:  # noqa: ARG002
            for _ in current.batches:
                yield made[current.framing]

    keep_freed_memory()
    with short_switch_interval(), join_world() as world, OneBatch(1) as loader:
        inputs = open_training_inputs(untrained, images, images, epochs).with_flips(True)
        made = {}
        for framing in set(inputs.training_framings(epochs)):
            pixels = torch.randint(0, 256, (batch_size, framing.height, framing.width, 3))
            targets = torch.randint(0, len(inputs.categories), (batch_size,))
            pixels = pixels.byte().permute(0, 3, 1, 2).to(world.device)
            # Targets stay on the CPU: the loop pins those of every batch for the copy to a GPU.
            made[framing] = Batch(pixels, targets, targets.numpy(), batch_size, {})
        training = start_training(TrainConfig(batch_size=batch_size, epochs=epochs), inputs, world)
        batches = Batches(training.engine, loader, NO_CACHES)
        rates = []
        for _ in range(epochs):
            # No step waits for the GPU, so only whole epochs can be timed.
            started_at = time.perf_counter()
            trained = training.train(batches)
            rates.append(trained.metrics.images / (time.perf_counter() - started_at))
            training.state.validated = trained.metrics
            training.state.close_epoch(training.engine.network)
        return rates


if __name__ == "__main__":
    from train_pytorch_model.commands.program import leave_after

    leave_after(main)  # as the program itself ends
