"""Batches of random crops, without a network: by threads, as for a CPU, and by processes, as for a
GPU.
"""

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from tests.benchmarks.timing import arguments, measure_in_turn, paint_photos, show
from tests.recipes import decided_recipe
from train_pytorch_model.data import preparation
from train_pytorch_model.data.cache_budget import plan_cache
from train_pytorch_model.data.dataset import EpochPlan, training_dataset
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.epoch_plan import plan_training
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import open_caches
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.machine.threads import short_switch_interval

FRAMING = Framing(224, 224, 0.875)
CROPS = decided_recipe(augmentation="random-resized-crop", crop_area=0.08, horizontal_flip=True)
PREPARED = preparation.for_training(CROPS, FRAMING, FRAMING)
EPOCHS = 3
ALONE = World(0, 1, 0, 1, torch.device("cpu"))


def main() -> None:
    """Print images per second in the first epoch and in the best later one."""
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--batch-size", type=int, default=256)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder, short_switch_interval():
        root = chosen.images or paint_photos(Path(folder) / "images", 100)
        images = open_image_directory(root, "images")
        ways = {
            "threads": lambda: _rates(images, chosen.threads, chosen.batch_size, has_readers=False),
            "processes": lambda: _rates(
                images, chosen.threads, chosen.batch_size, has_readers=True
            ),
        }
        show(measure_in_turn(ways, chosen.repeats))


def _rates(
    images: ImageDirectory, threads: int, batch_size: int, has_readers: bool
) -> Mapping[str, float]:
    """Return the rates of one run. Processes finish their imports before the first epoch starts."""
    datasets = (images, PREPARED), (images, preparation.for_inference(FRAMING))
    plan = plan_cache(*datasets, EPOCHS, threads if has_readers else 0)
    with ExitStack() as stack:
        readers = None
        if has_readers:
            readers = Decoders([preparation.__name__])
            stack.callback(readers.close)
        caches = stack.enter_context(open_caches(plan, ALONE))
        if readers is not None:
            readers.decode(images.path(0), FRAMING.short_side)
            readers.use_cache(caches.shared)
        loader = stack.enter_context(Loader(threads, readers))
        rates = []
        if (
            not has_readers
        ):  # processes of threads import this module as well: outside of its main function
            some = plan_training(len(images), batch_size, 1, 0, 0, 0, 1, 0)[:1]
            dataset = training_dataset(images, PREPARED, 0, 0)
            list(loader.batches(EpochPlan("0", some, dataset, FRAMING)))
        for epoch in range(1, EPOCHS + 1):
            batches = plan_training(len(images), batch_size, 1, 0, epoch, 0, 1, 0)
            dataset = training_dataset(images, PREPARED, 0, epoch, caches.training)
            started_at = time.perf_counter()
            for _ in loader.batches(EpochPlan(str(epoch), batches, dataset, FRAMING)):
                pass
            rates.append(len(images) / (time.perf_counter() - started_at))
    return {"images/s, first epoch": rates[0], "images/s, best later epoch": max(rates[1:])}


if __name__ == "__main__":
    main()
