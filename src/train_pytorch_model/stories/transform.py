"""Transform the images of a directory by torchvision's operations into another image directory."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from train_pytorch_model import errors
from train_pytorch_model.config import wording
from train_pytorch_model.data.pixel_decisions import find_white_level
from train_pytorch_model.datasets.transformed_rows import transformed_rows
from train_pytorch_model.datasets.transforming import ImageTransform, OperationError
from train_pytorch_model.formats.image_directory import ImageDirectory, writing_image_directory
from train_pytorch_model.formats.label_kinds import KIND_OF
from train_pytorch_model.formats.transformation_directory import Transformation
from train_pytorch_model.formats.writing import in_order
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.colours import MAX_WHITE, Colours
from train_pytorch_model.image_classifier.pillow_settings import pillow_for_decoding
from train_pytorch_model.inputs.unreadable_images import (
    UnreadableImage,
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.machine.library_lines import library_lines

# Of 9: photographs are 6 % larger than at Pillow's default of 6, and take half the time.
COMPRESSION = 3
AHEAD = 4  # images per thread that are in progress or wait to be written: as files, not pixels


def transform(
    images: ImageDirectory,
    unreadable_images: Sequence[UnreadableImage],
    transformation: Transformation,
    seed: int,
    output: Path,
    name: str,
    overwrite: bool = False,
) -> int:
    """Write an ImageDirectory of the transformed images; return how many it has.

    `unreadable_images` are those left out before; `name` is the parameter that names `output`.
    Raises `InvalidDatasetError` if too many cannot be read, `InvalidTransformationDirectoryError`
    if too many cannot be transformed, `OutputDirectoryError`.
    """
    image_transform = ImageTransform(transformation.operations, seed)
    schema_content = images.read_schema()
    _warn_of_annotations(images.title, schema_content)
    white = find_white_level(images)
    if white != MAX_WHITE:
        logger.info(
            f"16-bit images: 0 to {white:,} become black to white, the range that a sample uses"
        )
    colours = Colours(white)

    def png(index: int) -> bytes | Exception:
        """Return the transformed image as a PNG file, or why there is none."""
        try:
            with library_lines:
                original = decoding.decode(images.path(index), colours=colours)
            # Seeded by the row, which does not change when other images are left out.
            image = image_transform(original, int(images.rows[index]))
        except (decoding.UnreadableImageError, OperationError) as error:
            return error
        image.info.clear()  # pixels only, no colour profile and no other metadata
        buffer = io.BytesIO()
        image.save(buffer, "PNG", compress_level=COMPRESSION)
        return buffer.getvalue()

    unreadable: dict[int, Exception] = {}
    threads = usable_cores()
    with (
        pillow_for_decoding,  # operations may make large images, too
        torch.random.fork_rng(devices=[]),
        writing_image_directory(output, schema_content, name, overwrite) as writer,
        progress_bar(len(images), "Transforming") as bar,
        in_order(png, range(len(images)), threads, threads * AHEAD) as pngs,
    ):
        for index, (row, result) in enumerate(zip(transformed_rows(images), pngs, strict=True)):
            if isinstance(result, bytes):
                writer.path_for(row).write_bytes(result)
                writer.add(row)
            else:
                unreadable[index] = result
                # At 1, 2, 4, 8 …: each check goes over all images.
                if len(unreadable).bit_count() == 1:
                    _check_unreadable(images, transformation, unreadable)
            bar.advance()
        records = _check_unreadable(images, transformation, unreadable)
        list_unreadable_images(writer.root, [*unreadable_images, *records])
    return len(images) - len(unreadable)


def _warn_of_annotations(title: str, schema_content: dict[str, Any]) -> None:
    """Warn of columns that describe the original pixels, such as boxes."""
    for column in schema_content["columnAttributes"]:
        properties = column.get("properties") or {}
        if properties.get("annotation_type") not in (None, *KIND_OF):
            logger.warning(
                f"{title}: the annotations in column {column['name']!r} are copied"
                " unchanged, not transformed"
            )


def _check_unreadable(
    images: ImageDirectory, transformation: Transformation, unreadable: Mapping[int, Exception]
) -> list[UnreadableImage]:
    """Return a record of each image that is left out.

    Raises `InvalidDatasetError`, `InvalidTransformationDirectoryError` for too many.
    """
    reasons = {index: str(error) for index, error in unreadable.items()}
    try:
        _, records = without_unreadable_images(images, reasons)
        return records
    except errors.InvalidDatasetError as error:
        failed = [
            f"{images.file_names[index]}: {reason}"
            for index, reason in unreadable.items()
            if isinstance(reason, OperationError)
        ]
        if 2 * len(failed) < len(unreadable):  # most of them are damaged
            raise
        raise errors.InvalidTransformationDirectoryError(
            transformation.title,
            f"it cannot be applied to {len(failed)} of {len(images)}"
            f" images:{wording.bulleted(failed)}\n",
            "Put a Resize before that operation, or change its arguments.",
        ) from error
