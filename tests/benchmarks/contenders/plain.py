"""`plain IMAGES ARCHITECTURE SIZE BATCH EPOCHS [--frozen]`: a script after torchvision's
reference.

Pillow, float32 tensors made in worker processes, a contiguous model, the loss read at every step.
Trains on a GPU if there is one. `--frozen` trains the last layer only, as PyTorch's tutorial on
transfer learning does.
"""

import json
import os
import sys
import time

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    """Train and validate; print images per second of each training epoch as JSON."""
    images, architecture, *numbers = [
        argument for argument in sys.argv[1:] if argument != "--frozen"
    ]
    size, batch_size, epochs = map(int, numbers)
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    training = torchvision.datasets.ImageFolder(
        images,
        transforms.Compose(
            [
                transforms.RandomResizedCrop(size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    validation = torchvision.datasets.ImageFolder(
        images,
        transforms.Compose(
            [
                transforms.Resize(size * 256 // 224),
                transforms.CenterCrop(size),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    torch.backends.cudnn.benchmark = True  # as in the reference without options
    model = torchvision.models.get_model(architecture, num_classes=len(training.classes)).to(DEVICE)
    trained = list(model.parameters())
    if "--frozen" in sys.argv:
        model.requires_grad_(False)
        trained = trained[-2:]  # weights and biases of the last layer
        for parameter in trained:
            parameter.requires_grad_(True)
    optimizer = torch.optim.SGD(trained, lr=0.001, momentum=0.9, weight_decay=1e-4)
    loss_function = nn.CrossEntropyLoss()
    rates = []
    for _ in range(epochs):
        model.train()
        epoch_started_at = time.perf_counter()
        for pixels, targets in loader(training, batch_size, shuffle=True):
            loss = loss_function(model(on_device(pixels)), on_device(targets))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        rates.append(len(training) / (time.perf_counter() - epoch_started_at))
        model.eval()
        with torch.inference_mode():
            for pixels, targets in loader(validation, batch_size, shuffle=False):
                loss_function(model(on_device(pixels)), on_device(targets)).item()
    print(json.dumps({"rates": rates}))


def loader(
    dataset: "Dataset[tuple[Tensor, int]]", batch_size: int, shuffle: bool
) -> "DataLoader[list[Tensor]]":
    """Return a loader with one worker process per usable core."""
    workers = len(os.sched_getaffinity(0))
    return DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size,
        shuffle=shuffle,
        num_workers=workers,
        pin_memory=DEVICE.type == "cuda",
    )


def on_device(tensor: Tensor) -> Tensor:
    """Copy a tensor to the device; asynchronously from pinned memory."""
    return tensor.to(DEVICE, non_blocking=True)


if __name__ == "__main__":
    main()
