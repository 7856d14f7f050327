"""`timm_best.py IMAGES ARCHITECTURE SIZE BATCH EPOCHS`: timm's data pipeline, model and step at its best.

That is `train.py --amp --amp-dtype bfloat16 --channels-last --opt sgd` with as many workers as processors, on
a CPU. Run it with a Python that has timm.
"""

import json
import os
import sys
import time
from pathlib import Path

import timm
import timm.data
import timm.optim
import torch
from torch import nn


def main() -> None:
    """Train and validate; print the rates."""
    images, architecture, *numbers = sys.argv[1:]
    size, batch_size, epochs = map(int, numbers)
    workers = len(os.sched_getaffinity(0))
    loaders = []
    for is_training in (True, False):
        dataset = timm.data.create_dataset("", images, is_training=is_training)
        loaders.append(
            timm.data.create_loader(
                dataset,
                input_size=(3, size, size),
                batch_size=batch_size,
                is_training=is_training,
                no_aug=False,
                color_jitter=None,
                interpolation="bilinear",
                num_workers=workers,
                use_prefetcher=False,
                device=torch.device("cpu"),
                persistent_workers=True,
            )
        )
    training, validation = loaders
    classes = len(list(Path(images).iterdir()))
    model = timm.create_model(architecture, num_classes=classes).to(memory_format=torch.channels_last)
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.001, momentum=0.9, weight_decay=1e-4)
    loss_function = nn.CrossEntropyLoss()
    rates = []
    for _ in range(epochs):
        model.train()
        epoch_started_at, count = time.perf_counter(), 0
        for pixels, targets in training:
            count += len(targets)
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_function(model(pixels.contiguous(memory_format=torch.channels_last)), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        rates.append(count / (time.perf_counter() - epoch_started_at))
        model.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for pixels, targets in validation:
                loss_function(model(pixels.contiguous(memory_format=torch.channels_last)), targets).item()
    print(json.dumps({"rates": rates}))


if __name__ == "__main__":
    main()
