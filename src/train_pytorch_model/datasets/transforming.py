"""Transform the images of a directory into another image directory."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from train_pytorch_model.datasets.transformation import Apply, MisfitError
from train_pytorch_model.formats.copying import copy_threads, in_order
from train_pytorch_model.formats.image_directory import ImageDirectory, writing_image_directory
from train_pytorch_model.formats.transformation_directory import Transformation
from train_pytorch_model.formats.transformed_rows import spatial_annotations, transformed_rows
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.inputs.bad_images import (
    BAD_IMAGES,
    BadImage,
    left_out,
    without_bad_images,
    write_bad_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.words.errors import InvalidDatasetError, InvalidTransformationDirectoryError, listed

COMPRESSION = 3  # of 9: photographs are 6 % larger than at Pillow's default of 6, and take half the time
AHEAD = 4  # images per thread that are in progress or wait to be written: as files, not pixels


def transform(
    images: ImageDirectory,
    bad_images: Sequence[BadImage],
    transformation: Transformation,
    seed: int,
    output: Path,
    flag: str,
) -> int:
    """Write an ImageDirectory of the transformed images; returns how many it has.

    `bad_images` are those left out before; `flag` is the name of `output` in messages. Raises
    `InvalidDatasetError` if too many cannot be read, `InvalidTransformationDirectoryError` if too many cannot
    be transformed, `OutputDirectoryError`.
    """
    apply = Apply(transformation.operations, seed)
    rejected = _Rejected(images, transformation)
    schema_content = images.read_schema()
    for column in spatial_annotations(schema_content):
        logger.warning(
            f"{images.title}: the annotations in column {column!r} are copied unchanged, not transformed"
        )
    threads = usable_cores()
    png = partial(_png, images, apply)
    with (
        torch.random.fork_rng(devices=[]),
        writing_image_directory(output, schema_content, flag) as writer,
        progress_bar(len(images), "Transforming") as bar,
        copy_threads(threads) as pool,
    ):
        pngs = in_order(pool, png, range(len(images)), threads * AHEAD)
        for index, (row, result) in enumerate(zip(transformed_rows(images), pngs, strict=True)):
            if isinstance(result, bytes):
                writer.place(row).write_bytes(result)
                writer.add(row)
            else:
                rejected.add(index, result)
            bar.advance()
        left = [*bad_images, *rejected.records()]
        if left:
            logger.warning(left_out(left))
            write_bad_images(writer.root / BAD_IMAGES, left)
    return len(images) - len(rejected)


def _png(images: ImageDirectory, apply: Apply, index: int) -> bytes | Exception:
    """The transformed image as a PNG file, or why there is none."""
    try:
        # Seeded by the row, which does not change when other images are left out.
        image = apply(decode(images.path(index)), int(images.rows[index]))
    except (UnreadableImageError, MisfitError) as error:
        return error
    image.info.clear()  # pixels only, no colour profile and no other metadata
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=COMPRESSION)
    return buffer.getvalue()


class _Rejected:
    """The images that cannot be read or transformed; raises if they are too many."""

    def __init__(self, images: ImageDirectory, transformation: Transformation) -> None:
        self._images = images
        self._transformation = transformation
        self._reasons: dict[int, str] = {}
        self._misfits: list[str] = []

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, index: int, error: Exception) -> None:
        """Add an image. Raises, as `records` does, as soon as there are found to be too many."""
        self._reasons[index] = str(error)
        if isinstance(error, MisfitError):
            self._misfits.append(f"{self._images.file_names[index]}: {error}")
        if len(self).bit_count() == 1:  # at 1, 2, 4, 8 …: each check goes over all images
            self.records()

    def records(self) -> list[BadImage]:
        """The images left out. Raises `InvalidDatasetError`, `InvalidTransformationDirectoryError`."""
        try:
            return without_bad_images(self._images, self._reasons)[1]
        except InvalidDatasetError as error:
            if 2 * len(self._misfits) < len(self):  # most of them are damaged
                raise
            raise InvalidTransformationDirectoryError(
                self._transformation.title,
                f"it cannot be applied to {len(self._misfits)} of {len(self._images)} images:"
                f"{listed(self._misfits)}\n",
                "Put a Resize before that operation, or change its arguments.",
            ) from error
