"""`fine_tuned TRAINING HELD_OUT ARCHITECTURE WEIGHTS SIZE EPOCHS [--timm] [--float32]`: a script
that fine-tunes a network of timm as PyTorch's tutorial does.

Pillow, float32 tensors made in worker processes, a contiguous network, SGD at 0.001 that falls by a
cosine. With `--timm` as timm does it at its best flags: its loader, channels last, and bfloat16
unless `--float32`.
"""

import json
import os
import sys

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from tests.benchmarks.contenders.cpu_time import cpu_s
from tests.benchmarks.contenders.timm_loader import timm_loader

BATCH_SIZE = 16
WORKERS = len(os.sched_getaffinity(0))


def main() -> None:
    """Train; print CPU seconds and accuracy after each epoch as JSON."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    training, held_out, architecture, weights = given[:4]
    size, epochs = map(int, given[4:])
    is_timm = "--timm" in sys.argv
    layout = torch.channels_last if is_timm else torch.contiguous_format
    network = timm.create_model(architecture)
    network.load_state_dict(load_file(weights))
    classes = ImageFolder(training).classes
    network.reset_classifier(len(classes))
    network.to(memory_format=layout)
    normal = {"mean": network.default_cfg["mean"], "std": network.default_cfg["std"]}
    loader = plain_loader(training, size, normal)
    if is_timm:  # whose workers end with each epoch, and are counted then
        device = torch.device("cpu")
        options = {"persistent_workers": False, **normal}
        loader = timm_loader(training, size, BATCH_SIZE, device, **options)
    judged = DataLoader(ImageFolder(held_out, evaluated(size, normal)), BATCH_SIZE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    is_mixed = is_timm and "--float32" not in sys.argv
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=is_mixed)
    found: list[tuple[float, float]] = []
    judging_s = 0.0
    for _ in range(epochs):
        network.train()
        for pixels, targets in loader:
            with mixed:
                logits = network(pixels.contiguous(memory_format=layout))
            loss = nn.functional.cross_entropy(logits.float(), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
        ended_s = cpu_s() - judging_s
        found.append((ended_s, accuracy(network, judged, layout)))
        judging_s = cpu_s() - ended_s
    print(json.dumps({"epochs": found}))


def evaluated(size: int, normal: dict[str, tuple[float, ...]]) -> transforms.Compose:
    """Return what a whole image goes through."""
    steps = [transforms.Resize((size, size)), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize(**normal)])


def plain_loader(
    folder: str, size: int, normal: dict[str, tuple[float, ...]]
) -> "DataLoader[list[Tensor]]":
    """Return random crops of the images, mirrored at random."""
    steps = [
        transforms.RandomResizedCrop(size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    images = ImageFolder(folder, transforms.Compose([*steps, transforms.Normalize(**normal)]))
    return DataLoader(images, BATCH_SIZE, shuffle=True, num_workers=WORKERS)


@torch.inference_mode()
def accuracy(
    network: nn.Module, images: "DataLoader[list[Tensor]]", layout: torch.memory_format
) -> float:
    """Return the share of images whose category is predicted."""
    network.eval()
    num_right, count = 0, 0
    for pixels, targets in images:
        predicted = network(pixels.contiguous(memory_format=layout)).argmax(dim=1)
        num_right += int((predicted == targets).sum())
        count += len(targets)
    return num_right / count


if __name__ == "__main__":
    main()
