"""Perceptual hashes: images that look alike have hashes that differ in few bits.

A hash holds the signs of the 128 lowest frequencies of an image's brightness, of its discrete
cosine transform, as in pHash (Zauner 2010), the lowest first. Re-encoding, resizing and other
brightness change few signs; mirroring changes those of all odd horizontal frequencies, which are
known, so that it needs no second hash. `tests/benchmarks/data_quality` measures what follows from
that.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.formats.reading import MalformedFileError, read_bounded

IMAGE_HASHES = "image_hashes.bin"  # perceptual hashes of the training images, one after the other

NUM_BYTES = 16
MAX_HASHED = 2_000_000  # images of a run; of more, there are no hashes
SIDE = 32  # px of the thumbnail that is transformed
# px, at least, of the short side from which it is made: more costs time and adds nothing
SAMPLED_SIDE = 96
MIN_CONTRAST = 2.0  # standard deviation of the thumbnail's brightness; below, the signs are noise
MIN_STRENGTH = 1e-2  # symmetric images have frequencies of strength 0, up to rounding


def _lowest_frequencies() -> np.ndarray:
    """Return (2, 128), int64: the rows and the columns of the frequencies whose signs are kept."""
    frequencies = [
        (row, column) for row in range(SIDE) for column in range(SIDE) if row + column > 0
    ]
    frequencies.sort(key=lambda frequency: (sum(frequency), frequency))
    return np.array(frequencies[: 8 * NUM_BYTES]).T


def _waves(num_waves: int) -> np.ndarray:
    """Return (num_waves, SIDE), float32: the cosines of the lowest frequencies."""
    positions = np.arange(SIDE)
    angles = np.pi * np.outer(positions, 2 * positions + 1) / (2 * SIDE)
    return np.cos(angles).astype(np.float32)[:num_waves]


_ROWS, _COLUMNS = _lowest_frequencies()
_WAVES = _waves(1 + max(_ROWS.max(), _COLUMNS.max()))  # no higher one is used
MIRRORED_BITS = np.packbits(_COLUMNS % 2)  # (16,), uint8: the bits that mirroring inverts


def perceptual_hash(pixels: np.ndarray) -> np.ndarray:
    """Return the hash (16,), uint8, of an RGB image (H, W, 3), uint8.

    It is all zeros if the image shows next to nothing.
    """
    # Some rows are enough. Leaving out columns, too, costs more time than it saves.
    every = max(1, min(pixels.shape[:2]) // SAMPLED_SIDE)
    grey = Image.fromarray(pixels[::every]).convert("L")
    thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
    if thumbnail.std() < MIN_CONTRAST:
        return np.zeros(NUM_BYTES, np.uint8)
    strengths = (_WAVES @ thumbnail @ _WAVES.T)[_ROWS, _COLUMNS]  # (128,)
    return np.packbits(strengths > MIN_STRENGTH)


def read_image_hashes(model: Path) -> np.ndarray:
    """Return the hashes (N, 16), uint8, of the images that a model was trained on.

    N is 0 if the model directory does not have them.
    """
    try:
        content = read_bounded(model / IMAGE_HASHES, MAX_HASHED * NUM_BYTES)
    except MalformedFileError:  # another program's model, or too many images
        content = b""
    whole = len(content) // NUM_BYTES * NUM_BYTES
    return np.frombuffer(content[:whole], np.uint8).reshape(-1, NUM_BYTES)
