"""A trained network: from an image to its probabilities, and the device that computes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from .answers import Answers, AnyCategories, OneCategory
from .architectures import build, head_of
from .predictions import energies_of
from .seen import brightness_of
from .spec import ClassifierSpec
from .weights import fold_extra_head, read_state_dict

ACCELERATORS = ("cuda", "xpu", "mps")  # NVIDIA's and AMD's, Intel's, Apple's
BATCH_SIZE = 64
# No weights file of ours is larger than the architecture's state dict in float64, and its names.
SIZE_FACTOR = 2
SIZE_MARGIN = 16 << 20


def best_device(local_rank: int = 0) -> torch.device:
    """Return an accelerator that PyTorch finds, else the CPU.

    Of several GPUs of CUDA, it is the one with the number `local_rank`.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type not in ACCELERATORS:
        return torch.device("cpu")
    if accelerator.type == "cuda":
        return torch.device("cuda", local_rank)
    return accelerator


def exact_device(device: torch.device) -> torch.device:
    """Return the device for sums in float64, which mps does not have."""
    return torch.device("cpu") if device.type == "mps" else device


class Normalize(nn.Module):
    """Maps uint8 images (B, 3, H, W) to float32 `(images / 255 - mean) / std`.

    Their memory format stays.
    """

    scale: Tensor
    bias: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        means = torch.tensor(mean).view(3, 1, 1)
        deviations = torch.tensor(std).view(3, 1, 1)
        self.register_buffer("scale", 1 / (255 * deviations))
        self.register_buffer("bias", -means / deviations)

    def forward(self, images: Tensor) -> Tensor:
        return images.float().mul_(self.scale).add_(self.bias)


def activation_of(spec: ClassifierSpec) -> nn.Module:
    """Return what maps logits (B, C) to probabilities: of one category, or of each by itself."""
    return _ACTIVATIONS[type(spec.answers)]()


_ACTIVATIONS: Mapping[type[Answers], Callable[[], nn.Module]] = {
    OneCategory: lambda: nn.Softmax(dim=1),
    AnyCategories: nn.Sigmoid,
}


@dataclass(frozen=True)
class Classified:
    """What a classifier says of N images; NaN for what cannot be read."""

    probabilities: np.ndarray  # (N, C), float64
    energies: np.ndarray  # (N,), float64: how unlike the training images they are
    brightness: np.ndarray  # (N,), float64, 0 to 1; NaN unless they are watched
    errors: Sequence[str | None]  # why an image cannot be read; None for one that can


class ImageClassifier:
    """Maps images to probabilities, in float32 whatever the training precision was."""

    def __init__(self, spec: ClassifierSpec, network: nn.Module, device: torch.device) -> None:
        self.spec = spec
        self._device = device
        self._activation = activation_of(spec)
        model = nn.Sequential(Normalize(spec.mean, spec.std), network).eval()
        self._model = model.to(device).to(memory_format=torch.channels_last)

    @classmethod
    def load(
        cls, spec: ClassifierSpec, weights_path: Path, device: torch.device
    ) -> "ImageClassifier":
        """Read the weights of a trained directory. Raises `WeightsError`."""
        with torch.random.fork_rng(devices=[]):  # it draws weights, which are then replaced
            size = (spec.framing.height, spec.framing.width)
            network = build(spec.architecture, spec.option, len(spec.categories), size)
        state = read_state_dict(weights_path, max_bytes(network))
        head = head_of(spec.architecture, network)
        network.load_state_dict(fold_extra_head(state, head, len(spec.categories)))
        return cls(spec, network, device)

    @torch.inference_mode()
    def predict(self, pixels: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return probabilities (B, C), and `energies_of` the logits (B,), both float64.

        `pixels`: (B, H, W, 3), uint8.
        """
        images = pixels.to(self._device).permute(0, 3, 1, 2)  # (B, 3, H, W), channels last
        # By default cuDNN may use TF32, whose 10-bit mantissas change probabilities by 1e-3.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            logits: Tensor = self._model(images)
        logits = logits.cpu().double()
        probabilities: Tensor = self._activation(logits)
        return probabilities.numpy(force=True), energies_of(logits.numpy(force=True))

    @torch.inference_mode()
    def predict_with_features(self, pixels: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the last linear layer's input, (B, F), float32, and what `predict` returns."""
        network = self._model[1]
        head = network.get_submodule(head_of(self.spec.architecture, network))
        with recording_inputs(head) as features:
            probabilities, energies = self.predict(pixels)
        return features[0].numpy(force=True), probabilities, energies

    def classify(self, images: Iterable[Image.Image | str], is_watched: bool = False) -> Classified:
        """Predict N RGB images of any size, of which at most a batch is in memory.

        A text in place of an image is the reason why it cannot be read. The brightness of images is
        measured only if they are watched.
        """
        remaining = iter(images)
        reasons: list[str | None] = []
        probabilities = [np.empty((0, len(self.spec.categories)))]
        values = [np.empty((0, 2))]
        while batch := list(islice(remaining, BATCH_SIZE)):
            reasons += [image if isinstance(image, str) else None for image in batch]
            batch_probabilities, batch_values = self._classify_batch(batch, is_watched)
            probabilities.append(batch_probabilities)
            values.append(batch_values)
        energies, brightness = np.concatenate(values).T
        return Classified(np.concatenate(probabilities), energies, brightness, reasons)

    def _classify_batch(
        self, batch: Sequence[Image.Image | str], is_watched: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return probabilities (B, C); energies and brightness (B, 2); NaN for what is no image."""
        probabilities = np.full((len(batch), len(self.spec.categories)), np.nan)
        values = np.full((len(batch), 2), np.nan)
        is_image = [not isinstance(image, str) for image in batch]
        frames = [self.spec.framing.apply(image) for image in batch if not isinstance(image, str)]
        if frames:
            pixels = torch.from_numpy(np.stack(frames))
            probabilities[is_image], values[is_image, 0] = self.predict(pixels)
            if is_watched:
                values[is_image, 1] = brightness_of(pixels)
        return probabilities, values


@contextmanager
def recording_inputs(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what a layer gets in each forward pass, for a `with`."""
    recorded: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0])):
        yield recorded


def max_bytes(network: nn.Module) -> int:
    """Return the size in bytes above which a weights file cannot be this network's."""
    num_bytes: int = sum(value.nbytes for value in network.state_dict().values())
    return SIZE_FACTOR * num_bytes + SIZE_MARGIN
