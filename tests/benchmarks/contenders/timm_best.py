"""`timm_best.py IMAGES ARCHITECTURE SIZE BATCH EPOCHS [--compile] [--float32]`: timm at its
fastest.

That is `train.py --amp --amp-dtype bfloat16 --channels-last --opt sgd` with one worker per usable
core: `--no-prefetcher` on a CPU, `--pin-mem` on a GPU; on request `--torchcompile`, or float32 for
`--amp`. The loss is read only at the end of an epoch, as reading it waits for a GPU. Run it with a
Python that has timm.
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
    """Train and validate; print images per second of each training epoch as JSON."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    images, architecture, *numbers = arguments
    size, batch_size, epochs = map(int, numbers)
    workers = len(os.sched_getaffinity(0))
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")
    torch.backends.cudnn.benchmark = True  # as in train.py
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
                use_prefetcher=has_gpu,
                pin_memory=has_gpu,
                device=device,
                persistent_workers=True,
            )
        )
    training, validation = loaders
    classes = len(list(Path(images).iterdir()))
    model = timm.create_model(architecture, num_classes=classes)
    model = model.to(device).to(memory_format=torch.channels_last)
    optimizer = timm.optim.create_optimizer_v2(
        model, opt="sgd", lr=0.001, momentum=0.9, weight_decay=1e-4
    )
    if "--compile" in sys.argv:
        model = torch.compile(model)
    loss_function = nn.CrossEntropyLoss()
    mixed = torch.autocast(device.type, torch.bfloat16, enabled="--float32" not in sys.argv)
    rates = []
    for _ in range(epochs):
        model.train()
        epoch_started_at, count = time.perf_counter(), 0
        for pixels, targets in training:
            count += len(targets)
            with mixed:
                loss = loss_function(
                    model(pixels.contiguous(memory_format=torch.channels_last)), targets
                )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        loss.item()  # waits for all steps
        rates.append(count / (time.perf_counter() - epoch_started_at))
        model.eval()
        with torch.inference_mode(), mixed:
            for pixels, targets in validation:
                loss_function(
                    model(pixels.contiguous(memory_format=torch.channels_last)), targets
                ).item()
    print(json.dumps({"rates": rates}))


if __name__ == "__main__":
    main()
