"""Transform the images of a directory by torchvision's operations into another image directory."""

import io
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from PIL import Image
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # documented, and not in its __all__
from torchvision.transforms import InterpolationMode, v2

from train_pytorch_model import errors
from train_pytorch_model.config import wording
from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.data.pixel_decisions import find_white_level
from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import (
    IMAGE_FOLDER,
    ImageDirectory,
    writing_image_directory,
)
from train_pytorch_model.formats.listing import is_utf8
from train_pytorch_model.formats.transformation_directory import Operation, Transformation
from train_pytorch_model.formats.writing import in_order
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.pillow_settings import pillow_for_decoding
from train_pytorch_model.inputs.unreadable_images import (
    UnreadableImage,
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.cores import usable_cores

COMPRESSION = (
    3  # of 9: photographs are 6 % larger than at Pillow's default of 6, and take half the time
)
AHEAD = 4  # images per thread that are in progress or wait to be written: as files, not pixels
MAX_NAME_BYTES = 255  # of a file, on every common file system
SIZES = ("width", "height")  # of the original image

# torchvision draws from torch's one global generator, so one thread at a time may seed it and draw:
# 0.01 to 0.3 ms per operation. Decoding, resampling and encoding take milliseconds, and run in
# parallel.
_drawing = threading.Lock()


class OperationError(Exception):
    """An operation cannot be applied to an image; the text is the reason, without the file's name."""


class Apply:
    """Operations as a function of an image and its index, whatever the threads; seeds torch's
    generator."""

    def __init__(self, operations: Sequence[Operation], seed: int) -> None:
        self._steps, self._seed = [], seed
        for operation in operations:
            arguments = operation.arguments()
            if "interpolation" in arguments:
                arguments["interpolation"] = InterpolationMode(arguments["interpolation"])
            step: Any = getattr(v2, operation.name)(
                **arguments
            )  # our class's name, not a file's text
            self._steps.append((operation, step))

    def __call__(self, image: Image.Image, index: int) -> Image.Image:
        """Return the transformed image: RGB, or L after Grayscale. Raises `OperationError`."""
        for number, (operation, step) in enumerate(self._steps):
            height, width = operation.bound(image.height, image.width)
            try:
                if height * width > (limit := decoding.MAX_PIXELS):
                    raise ValueError(f"{width:,} x {height:,} pixels would be more than {limit:,}")
                with _drawing:
                    torch.default_generator.manual_seed(
                        derive_seed(self._seed, "transform", index, number)
                    )
                    if hasattr(step, "p") and torch.rand(1) >= step.p:
                        continue
                    parameters = step.make_params([image])
                image = step.transform(image, parameters)
            except (ValueError, LinAlgError) as error:  # or too small to be cropped or tilted
                reason = " ".join(str(error).split()).rstrip(".")
                raise OperationError(
                    f"{operation.name} cannot be applied to {image.width} x {image.height} pixels:"
                    f" {reason}"
                ) from error
        return image


def transform(
    images: ImageDirectory,
    unreadable_images: Sequence[UnreadableImage],
    transformation: Transformation,
    seed: int,
    output: Path,
    name: str,
) -> int:
    """Write an ImageDirectory of the transformed images; return how many it has.

    `unreadable_images` are those left out before; `name` is the parameter that names `output`.
    Raises `InvalidDatasetError` if too many cannot be read, `InvalidTransformationDirectoryError`
    if too many cannot be transformed, `OutputDirectoryError`.
    """
    apply = Apply(transformation.operations, seed)
    unreadable: dict[int, Exception] = {}
    schema_content = images.read_schema()
    for column in schema_content["columnAttributes"]:
        if (column.get("properties") or {}).get("annotation_type") not in (
            None,
            schema.CLASSIFICATION,
        ):
            logger.warning(
                f"{images.title}: the annotations in column {column['name']!r} are copied"
                " unchanged, not"
                " transformed"
            )
    if (white := find_white_level(images)) != decoding.MAX_WHITE:
        logger.info(
            f"16-bit images: 0 to {white:,} become black to white, the range that a sample uses"
        )
    colours, threads = decoding.Colours(white), usable_cores()

    def png(index: int) -> bytes | Exception:
        """Return the transformed image as a PNG file, or why there is none."""
        try:
            # Seeded by the row, which does not change when other images are left out.
            image = apply(
                decoding.decode(images.path(index), colours=colours), int(images.rows[index])
            )
        except (decoding.UnreadableImageError, OperationError) as error:
            return error
        image.info.clear()  # pixels only, no colour profile and no other metadata
        buffer = io.BytesIO()
        image.save(buffer, "PNG", compress_level=COMPRESSION)
        return buffer.getvalue()

    with (
        pillow_for_decoding,  # operations may make large images, too
        torch.random.fork_rng(devices=[]),
        writing_image_directory(output, schema_content, name) as writer,
        progress_bar(len(images), "Transforming") as bar,
        in_order(png, range(len(images)), threads, threads * AHEAD) as pngs,
    ):
        for index, (row, result) in enumerate(zip(_transformed_rows(images), pngs, strict=True)):
            if isinstance(result, bytes):
                writer.path_for(row).write_bytes(result)
                writer.add(row)
            else:
                unreadable[index] = result
                if (
                    len(unreadable).bit_count() == 1
                ):  # at 1, 2, 4, 8 …: each check goes over all images
                    _check_unreadable(images, transformation, unreadable)
            bar.advance()
        records = _check_unreadable(images, transformation, unreadable)
        list_unreadable_images(writer.root, [*unreadable_images, *records])
    return len(images) - len(unreadable)


def _transformed_rows(images: ImageDirectory) -> Iterator[dict[str, Any]]:
    """Yield rows without sizes, of `image/1_134.png`, or `image/<row>.png` if that is taken or
    invalid.
    """
    _, reference = schema.image_column(images.read_schema())
    taken: set[int] = set()
    for place, row in zip(images.rows.tolist(), images.read_listed_rows(), strict=True):
        kept = {name: value for name, value in row[reference].items() if name not in SIZES}
        stem = str(PurePosixPath(kept["file_name"]).with_suffix("")).removeprefix(
            f"{IMAGE_FOLDER}/"
        )
        stems = chain([stem, f"{place}"], (f"{place}_{number}" for number in count(2)))
        free = next(stem for stem in stems if _take(stem, taken))
        yield row | {reference: kept | {"file_name": f"{IMAGE_FOLDER}/{free}.png"}}


def _take(stem: str, taken: set[int]) -> bool:
    """Whether the name is valid and free; if so, mark it as taken."""
    *folders, file = f"{stem}.png".split("/")
    if (
        not is_utf8(file) or len(file.encode()) > MAX_NAME_BYTES
    ):  # the list cannot hold undecodable bytes
        return False
    is_in_file = any(
        folder.lower().endswith(".png") for folder in folders
    )  # maybe another image's name
    key = hash(unicodedata.normalize("NFC", stem).casefold())  # as on case-insensitive file systems
    if is_in_file or key in taken:
        return False
    taken.add(key)
    return True


def _check_unreadable(
    images: ImageDirectory, transformation: Transformation, unreadable: Mapping[int, Exception]
) -> list[UnreadableImage]:
    """What is left out.

    Raises `InvalidDatasetError`, `InvalidTransformationDirectoryError` for too many.
    """
    try:
        return without_unreadable_images(
            images, {index: str(error) for index, error in unreadable.items()}
        )[1]
    except errors.InvalidDatasetError as error:
        named = ((images.file_names[index], reason) for index, reason in unreadable.items())
        failed = [
            f"{name}: {reason}" for name, reason in named if isinstance(reason, OperationError)
        ]
        if 2 * len(failed) < len(unreadable):  # most of them are damaged
            raise
        raise errors.InvalidTransformationDirectoryError(
            transformation.title,
            f"it cannot be applied to {len(failed)} of {len(images)}"
            f" images:{wording.bulleted(failed)}\n",
            "Put a Resize before that operation, or change its arguments.",
        ) from error
