"""Memory of a training after each epoch: it grows only until all images are decoded."""

import tempfile
from pathlib import Path

from tests.benchmarks.timing import arguments, machine, paint_photos
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.inputs.opening import open_training_inputs


def main() -> None:
    """Print the resident memory after each epoch, and how much of it is files and shared memory."""
    parser = arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images or paint_photos(Path(folder) / "images", 20)
        untrained = Path(folder) / "untrained"
        InitModel(architecture="resnet18", output=untrained, recipe=Recipe(image_size=64)).run()
        print(f"{machine()}\n\n| epoch | resident, MB | files and shared, MB |\n|---|---|---|")
        _train(untrained, images, chosen.epochs)


def _train(untrained: Path, images: Path, epochs: int) -> None:
    from tests.trainings import start_training
    from train_pytorch_model.data.loader import start_readers
    from train_pytorch_model.distributed.rendezvous import join_world
    from train_pytorch_model.training.batches import open_batches

    inputs = open_training_inputs(untrained, images, images).with_flips(True)
    with join_world() as world:
        training = start_training(TrainConfig(epochs=epochs), inputs, world)
        with start_readers(world) as readers, open_batches(training.engine, readers) as batches:
            for epoch in range(1, epochs + 1):
                training.train_and_validate(batches)
                status = Path("/proc/self/status").read_text().splitlines()
                kilobytes = {
                    line.split(":")[0]: line.split()[1] for line in status if " kB" in line
                }
                shared = int(kilobytes["RssFile"]) + int(kilobytes["RssShmem"])
                print(
                    f"| {epoch} | {int(kilobytes['VmRSS']) / 1000:.0f} | {shared / 1000:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
