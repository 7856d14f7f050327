"""Images as a Python program has them, one or many: files, folders, bytes, arrays, tensors.

Many are taken one by one, so that a generator's need not be in memory together.
"""

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile

from train_pytorch_model.config.wording import parameter, reason_of
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, upright_rgb
from train_pytorch_model.image_classifier.pixels import read_pixels, reduce
from train_pytorch_model.image_classifier.seen import shape_of
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.image_classifier.unidentified import File
from train_pytorch_model.inference.arrays import NotAnImageError, image_of
from train_pytorch_model.inputs.scoring import DATASET, open_images_at_any_depth

EXPECTED = (
    "expected a path, bytes, an open file, a PIL image, an array or a tensor, or several of these"
)


@dataclass(frozen=True)
class GivenImage:
    """An image that is not read yet."""

    name: str  # of its row: its path, or its number
    place: str  # where it was given, in words
    value: object
    is_alone: bool


def given_images(images: object) -> Iterator[GivenImage]:
    """Yield the images, also those in folders and batches, as they are asked for.

    Raises `ParameterError`; `InvalidDatasetError` for a folder that is given alone.
    """
    name = parameter("images")
    array = _array_of(images)
    if array is not None:
        images = array
    if not _is_several(images):
        yield from _with_contents(GivenImage("0", name, images, is_alone=True))
        return
    assert isinstance(images, Iterable)
    for number, image in enumerate(images):
        place = f"element {number} of {name}"
        yield from _with_contents(GivenImage(str(number), place, image, is_alone=False))


def read_image(image: GivenImage, framing: Framing) -> Image.Image | str:
    """Return an image in RGB and of bounded size, or the reason why there is none.

    Raises `ParameterError` for what is no image and was given alone.
    """
    try:
        return _read(image.value, framing)
    except UnreadableImageError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # perhaps it has never been there
            return _missing(image.name)
        return str(error)
    except NotAnImageError as error:
        problem = f"{image.place} is {error}."
        if image.is_alone:
            raise ParameterError(problem) from error
        return problem


def given_shape(image: GivenImage, read: Image.Image | str) -> tuple[float, float]:
    """Return the aspect ratio and the pixels of a given image, which was read; NaN if unknown.

    Pixels are those of a file: what came as pixels may be reduced.
    """
    if isinstance(read, str):
        return np.nan, np.nan
    if isinstance(image.value, str | os.PathLike):
        return shape_of(Path(image.value))
    if isinstance(image.value, bytes):
        return shape_of(io.BytesIO(image.value))
    return read.width / read.height, np.nan


def _array_of(value: object) -> np.ndarray | None:
    """Return what is an array in any library; None for anything else."""
    if isinstance(value, Image.Image) or hasattr(value, "columns"):  # a table
        return None
    try:
        if isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        return np.asarray(value) if hasattr(value, "__array__") else None
    except (TypeError, ValueError, RuntimeError):  # such as a sparse tensor
        return None


def _is_several(images: object) -> bool:
    """Return whether these are images rather than one, or nothing that can be taken."""
    if isinstance(images, np.ndarray):
        is_numeric = images.dtype.kind not in "OSU"
        return images.ndim == 4 if is_numeric else images.ndim > 0
    if isinstance(images, str | bytes | bytearray | memoryview | Mapping | Image.Image):
        return False
    is_one = isinstance(images, os.PathLike) or hasattr(images, "read")
    is_refused = any(hasattr(images, name) for name in ("columns", "__array__"))
    return isinstance(images, Iterable) and not is_one and not is_refused


def _with_contents(given: GivenImage) -> Iterator[GivenImage]:
    """Yield an image, or those in a folder or a batch."""
    value = given.value
    if isinstance(value, str | os.PathLike):
        yield from _with_files(given, os.fspath(value))
        return
    array = _array_of(value)
    if array is None or array.ndim != 4:
        yield given if array is None else GivenImage(given.name, given.place, array, given.is_alone)
        return
    for number, image in enumerate(array):
        place = f"image {number} of {given.place}"
        yield GivenImage(f"{given.name}[{number}]", place, image, is_alone=False)


def _with_files(given: GivenImage, path: str | bytes) -> Iterator[GivenImage]:
    """Yield a file, or those of a folder at any depth."""
    path = os.fsdecode(path)
    if not os.path.isdir(path):
        yield GivenImage(path, given.place, path, given.is_alone)
        return
    try:
        directory, _ = open_images_at_any_depth(Path(path), DATASET)
    except InvalidDatasetError as error:
        if given.is_alone:
            raise
        yield GivenImage(path, given.place, error, given.is_alone)
        return
    for index in range(len(directory)):
        file = str(directory.path(index))
        yield GivenImage(file, given.place, file, is_alone=False)


def _read(value: object, framing: Framing) -> Image.Image:
    """Return an image as `read_image` does.

    Raises `UnreadableImageError`, `NotAnImageError`.
    """
    if isinstance(value, InvalidDatasetError):
        raise UnreadableImageError(str(value))
    file = _file_of(value)
    if file is not None:
        return Image.fromarray(read_pixels(file, framing.short_side, framing.colours))
    if isinstance(value, np.ndarray):
        value = image_of(value, framing.colours)
    if not isinstance(value, Image.Image):
        raise NotAnImageError(_kind_of(value))
    pixels = np.array(_upright(value, framing.colours))
    return Image.fromarray(reduce(pixels, framing.short_side))


def _file_of(value: object) -> File | None:
    """Return the file that is named, given or open; None if it is none.

    Raises `NotAnImageError`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return io.BytesIO(value)
    if isinstance(value, Image.Image):
        return _untouched_jpeg(value)
    return io.BytesIO(_content(value)) if hasattr(value, "read") else None


def _untouched_jpeg(image: Image.Image) -> str | None:
    """Return the path of a JPEG that Pillow has opened, but not decoded.

    Read as a file, it is decoded at a fraction of its size, as the files of training were; and the
    caller's image stays as it is.
    """
    if not isinstance(image, ImageFile.ImageFile) or image.format != "JPEG":
        return None
    is_decoded = not image.tile
    path = image.filename
    return path if not is_decoded and isinstance(path, str) and os.path.isfile(path) else None


def _content(file: Any) -> bytes:
    """Return the content of an open file, from its beginning. Raises `NotAnImageError`."""
    if isinstance(file, io.TextIOBase):
        raise NotAnImageError('a file that was opened as text: open it with the mode "rb"')
    try:
        if file.seekable():
            file.seek(0)
        return bytes(file.read())
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise NotAnImageError(f"a file that cannot be read: {reason_of(error)}") from error


def _upright(image: Image.Image, colours: Colours) -> Image.Image:
    """Return an image of Pillow's, upright and in RGB. Raises `UnreadableImageError`."""
    try:
        return upright_rgb(image, colours)
    except UnreadableImageError:
        raise
    except Exception as error:  # Pillow's plugins raise far more than OSError
        raise UnreadableImageError(reason_of(error)) from error


def _kind_of(value: object) -> str:
    """Return what a value is that is no image, and what is expected."""
    if hasattr(value, "columns"):
        return "a table: give its column with the images"
    if hasattr(value, "__array__"):
        return f"of type {type(value).__name__}, and NumPy cannot read it: give a NumPy array"
    kind = "None" if value is None else f"of type {type(value).__name__}"
    return f"{kind}: {EXPECTED}"


def _missing(path: str) -> str:
    """Return what is wrong with a path at which there is nothing."""
    if "://" in path:
        return "a web address is not opened: download the image, and give its path or its bytes"
    return "there is no such file or folder"
