"""Transform the images of a directory into another image directory."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from train_pytorch_model.data.white_level import find_white_level
from train_pytorch_model.datasets.transformation import Apply, MisfitError
from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import ImageDirectory, writing_image_directory
from train_pytorch_model.formats.transformation_directory import Transformation
from train_pytorch_model.formats.transformed_rows import transformed_rows
from train_pytorch_model.formats.writing import copy_threads, in_order
from train_pytorch_model.image_classifier.decoding import MAX_WHITE, Colours, UnreadableImageError, decode
from train_pytorch_model.inputs.bad_images import (
    BAD_IMAGES,
    BadImage,
    left_out,
    without_bad_images,
    write_bad_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.words.errors import (
    InvalidDatasetError,
    InvalidTransformationDirectoryError,
    bulleted,
)

COMPRESSION = 3  # of 9: photographs are 6 % larger than at Pillow's default of 6, and take half the time
AHEAD = 4  # images per thread that are in progress or wait to be written: as files, not pixels


def transform(
    images: ImageDirectory,
    bad_images: Sequence[BadImage],
    transformation: Transformation,
    seed: int,
    output: Path,
    name: str,
) -> int:
    """Write an ImageDirectory of the transformed images; return how many it has.

    `bad_images` are those left out before; `name` is the parameter that names `output`. Raises
    `InvalidDatasetError` if too many cannot be read, `InvalidTransformationDirectoryError` if too many cannot
    be transformed, `OutputDirectoryError`.
    """
    apply = Apply(transformation.operations, seed)
    rejected: dict[int, Exception] = {}
    schema_content = images.read_schema()
    for column in schema.spatial_annotations(schema_content):
        logger.warning(
            f"{images.title}: the annotations in column {column!r} are copied unchanged, not transformed"
        )
    white_level = find_white_level(images)
    if white_level != MAX_WHITE:
        logger.info(
            f"16-bit images: 0 to {white_level:,} become black to white, the range that a sample uses"
        )
    threads = usable_cores()
    png = partial(_png, images, apply, Colours(white_level))
    with (
        torch.random.fork_rng(devices=[]),
        writing_image_directory(output, schema_content, name) as writer,
        progress_bar(len(images), "Transforming") as bar,
        copy_threads(threads) as pool,
    ):
        pngs = in_order(pool, png, range(len(images)), threads * AHEAD)
        for index, (row, result) in enumerate(zip(transformed_rows(images), pngs, strict=True)):
            if isinstance(result, bytes):
                writer.place(row).write_bytes(result)
                writer.add(row)
            else:
                rejected[index] = result
                if len(rejected).bit_count() == 1:  # at 1, 2, 4, 8 …: each check goes over all images
                    _check_rejected(images, transformation, rejected)
            bar.advance()
        left = [*bad_images, *_check_rejected(images, transformation, rejected)]
        if left:
            logger.warning(left_out(left))
            write_bad_images(writer.root / BAD_IMAGES, left)
    return len(images) - len(rejected)


def _png(images: ImageDirectory, apply: Apply, colours: Colours, index: int) -> bytes | Exception:
    """Return the transformed image as a PNG file, or why there is none."""
    try:
        # Seeded by the row, which does not change when other images are left out.
        image = apply(decode(images.path(index), colours=colours), int(images.rows[index]))
    except (UnreadableImageError, MisfitError) as error:
        return error
    image.info.clear()  # pixels only, no colour profile and no other metadata
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=COMPRESSION)
    return buffer.getvalue()


def _check_rejected(
    images: ImageDirectory, transformation: Transformation, rejected: Mapping[int, Exception]
) -> list[BadImage]:
    """Return the images that cannot be read or transformed.

    Raises `InvalidDatasetError`, `InvalidTransformationDirectoryError` if they are too many.
    """
    try:
        return without_bad_images(images, {index: str(error) for index, error in rejected.items()})[1]
    except InvalidDatasetError as error:
        misfits = [
            f"{images.file_names[index]}: {reason}"
            for index, reason in rejected.items()
            if isinstance(reason, MisfitError)
        ]
        if 2 * len(misfits) < len(rejected):  # most of them are damaged
            raise
        raise InvalidTransformationDirectoryError(
            transformation.title,
            f"it cannot be applied to {len(misfits)} of {len(images)} images:{bulleted(misfits)}\n",
            "Put a Resize before that operation, or change its arguments.",
        ) from error
