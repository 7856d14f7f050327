"""Tagged images as Custom Vision returns them, the answer of its API in a JSON file.

    [{"id": "f1b2…", "originalImageUri": "https://…/i-2c…/o-f1b2…?sv=…",
      "tags": [{"tagId": "9e…", "tagName": "hemlock"}, {"tagName": "cone"}], …}, …]

The files are here already, and called like the id of an image, or like the end of one of its
addresses, with or without a suffix. An image without a tag has none of the categories.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from train_pytorch_model.formats.reading import MalformedFileError, read_json

IMAGE = "image"
LABELS = "labels"


class _Tag(msgspec.Struct):
    tagName: str  # noqa: N815, the API's name


class _Image(msgspec.Struct):
    id: str
    tags: list[_Tag] | None = None
    originalImageUri: str = ""  # noqa: N815
    resizedImageUri: str = ""  # noqa: N815
    metadata: dict[str, str] | None = None


def tagged_images(
    path: Path, names_image: Callable[[str], bool]
) -> Iterator[Mapping[str, list[object]]]:
    """Yield a row for each image: what its file is called, and the list of its tags.

    Raises `MalformedFileError`.
    """
    try:
        images = read_json(path, list[_Image])
    except MalformedFileError as error:
        raise MalformedFileError(
            f"{path.name} is not what Custom Vision returns for tagged images, a list of objects"
            f' with "id" and "tags": {error}'
        ) from error
    for image in images:
        names = list(_names_of(image))
        name = next(filter(names_image, names), image.id)
        tags = tuple(tag.tagName for tag in image.tags or ())
        yield {IMAGE: [name], LABELS: [tags]}


def _names_of(image: _Image) -> Iterator[str]:
    """Yield what the file of an image may be called."""
    yield image.id
    for address in (image.originalImageUri, image.resizedImageUri):
        name = unquote(urlsplit(address).path.rpartition("/")[2])
        yield name
        yield name.removeprefix("o-")
    yield from (image.metadata or {}).values()
