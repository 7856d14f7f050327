"""TransformationDirectory: operations for every image, as written by Init Image Transformation.

    _meta.yaml          type: TransformationDirectory
                        extension: {}
                        transform_type: Image
    _transforms.json    a list of [operation, arguments], in the order in which they are applied:
                        [["Resize", 256], ["CenterCrop", 224], ["RandomHorizontalFlip", {}]]

The operations are torchvision's, and so are the names, order and defaults of their arguments. Arguments are
a mapping, a list in order, or a number for the first alone; a two-sided size is therefore a nested list,
["CenterCrop", [[224, 192]]]. A bare JSON file of the same list is read too.

A name in the file is looked up only in `OPERATIONS`: nothing outside that table can run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from train_pytorch_model.formats.image_operations import OPERATIONS, Operation
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import META, MalformedFileError, file_inside, read_json, read_meta
from train_pytorch_model.formats.writing import write_json
from train_pytorch_model.words.errors import InvalidTransformationDirectoryError, bulleted

TYPE = "TransformationDirectory"
TRANSFORMS = "_transforms.json"
IMAGE, PICKLE = "Image", "Pickle"
META_CONTENT: Mapping[str, Any] = {"type": TYPE, "extension": {}, "transform_type": IMAGE}

MAX_OPERATIONS = 64
HINT = f"The operations are {', '.join(OPERATIONS)}. init-transformation writes such a directory."


@dataclass(frozen=True)
class Transformation:
    """Operations in the order in which they are applied."""

    title: str
    """Its name in messages, such as `Input image transformation flips`."""
    operations: tuple[Operation, ...]

    def for_inference(self) -> "Transformation":
        """Return the same without its random operations."""
        return replace(self, operations=tuple(o for o in self.operations if not o.is_random))

    def __str__(self) -> str:
        return ", ".join(operation.name for operation in self.operations) or "no operation"


def open_transformation(path: Path, port: str) -> Transformation:
    """Open and check the directory, or the bare JSON file, given to the input `port`.

    Raises `InvalidTransformationDirectoryError`.
    """
    title = f"{port} {path}"
    try:
        operations = _parse(_list_in(path), TRANSFORMS if path.is_dir() else path.name)
    except MalformedFileError as error:
        raise InvalidTransformationDirectoryError(title, str(error), HINT) from error
    return Transformation(title, operations)


def write_transformation(path: Path, operations: Sequence[Operation], name: str) -> None:
    """Write the directory. Raises `OutputDirectoryError`."""
    entries = [[operation.name, _shortest(operation)] for operation in operations]
    with writing_directory(path, META_CONTENT, name) as root:
        write_json(root / TRANSFORMS, entries)


def _list_in(path: Path) -> list[Any]:
    if not path.exists():
        raise MalformedFileError(explain_missing(path, "directory or file"))
    if not path.is_dir():
        return read_json(path, list[Any])
    meta = read_meta(path, TYPE)
    kind = meta.get("transform_type")
    if kind == PICKLE:
        raise MalformedFileError(
            f"{META} says transform_type {PICKLE!r}, expected {IMAGE!r}."
            " A pickle can run code, and is never loaded."
        )
    if kind != IMAGE:
        raise MalformedFileError(f"{META} says transform_type {kind!r}, expected {IMAGE!r}.")
    return read_json(file_inside(path, TRANSFORMS), list[Any])


def _parse(entries: Sequence[Any], file_name: str) -> tuple[Operation, ...]:
    if len(entries) > MAX_OPERATIONS:
        raise MalformedFileError(
            f"{file_name} has {len(entries):,} operations, expected at most {MAX_OPERATIONS}."
        )
    operations: list[Operation] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        try:
            operations.append(_operation(entry))
        except ValueError as error:  # msgspec's ValidationError is one
            problems.append(f"entry {number}: {error}.")
    if problems:
        raise MalformedFileError(f"{file_name} cannot be used:{bulleted(problems)}\n")
    return tuple(operations)


def _operation(entry: Any) -> Operation:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise ValueError(f"expected [operation, arguments], found {_abbreviate(entry)}")
    name, arguments = entry
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ValueError(f"unknown operation {_abbreviate(name)}")
    names = operation.__struct_fields__
    if isinstance(arguments, list):
        if len(arguments) > len(names):
            raise ValueError(
                f"{name} takes at most {len(names)} arguments ({', '.join(names)}), found {len(arguments)}"
            )
        given = dict(zip(names, arguments, strict=False))
    elif isinstance(arguments, dict):
        given = arguments
    elif isinstance(arguments, (int, float)) and not isinstance(arguments, bool):
        given = {names[0]: arguments}
    else:
        raise ValueError(f"{name} takes a number, a list or a mapping, found {_abbreviate(arguments)}")
    try:
        return msgspec.convert(given, operation)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error


def _shortest(operation: Operation) -> Any:
    """Return the arguments as the classic component writes them: a number alone, or else a mapping."""
    given = msgspec.to_builtins(operation)
    first = operation.__struct_fields__[0]
    if given.keys() != {first} or isinstance(given[first], list):
        return given
    number = given[first]
    return int(number) if number == int(number) else number


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " …"
