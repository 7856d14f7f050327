"""Open images wherever they lie: for predictions, they need no categories."""

from collections.abc import Sequence
from pathlib import Path

from train_pytorch_model.formats.image_directory import (
    IMAGE_LIST,
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.listing import (
    LOOSE,
    NESTED,
    SUFFIXES,
    list_unlabelled,
    read_images_at_any_depth,
    suffix_of,
)
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError
from train_pytorch_model.words.errors import InvalidDatasetError


def open_images_at_any_depth(path: Path, port: str) -> tuple[ImageDirectory, Sequence[str]]:
    """Open a single image, or a directory of images in folders of any depth; return warnings, too.

    Images have categories only if all are in `<category>/<file>`. Raises `InvalidDatasetError`.
    """
    if path.is_file() and suffix_of(path.name) in SUFFIXES and not (path.parent / META).exists():
        return images_of(list_unlabelled([path.name], {}), path.parent, port), ()
    categories: Sequence[str] = ()
    try:
        images = open_image_directory(path, port)
        if not images.ignored.keys() & {NESTED, LOOSE}:
            return images, ()
        categories = images.categories
    except InvalidDatasetError:
        if not path.is_dir() or any((path / name).exists() for name in (META, INCOMPLETE, IMAGE_LIST)):
            raise
    try:
        nested = images_of(read_images_at_any_depth(path), path, port)
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{path}"', str(error)) from error
    if categories and all(name.count("/") == 1 for name in nested.file_names):
        return images, ()
    return nested, [f"{nested.title} has images at several depths: its folders are not taken for categories."]
