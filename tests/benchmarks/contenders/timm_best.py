"""`timm_best IMAGES ARCHITECTURE SIZE BATCH EPOCHS [--compile] [--float32]`: timm at its
fastest.

That is `train.py --amp --amp-dtype bfloat16 --channels-last --opt sgd` with one worker per usable
core: `--no-prefetcher` on a CPU, `--pin-mem` on a GPU; on request `--torchcompile`, or float32 for
`--amp`. The loss is read only at the end of an epoch, as reading it waits for a GPU. Run it with a
Python that has timm.
"""

import json
import sys
import time
from pathlib import Path

import timm
import timm.optim
import torch
from torch import nn

from tests.benchmarks.contenders.timm_loader import timm_loader


def main() -> None:
    """Train and validate; print images per second of each training epoch as JSON."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    images, architecture, *numbers = arguments
    size, batch_size, epochs = map(int, numbers)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True  # as in train.py
    training, validation = (
        timm_loader(images, size, batch_size, device, is_training, persistent_workers=True)
        for is_training in (True, False)
    )
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
