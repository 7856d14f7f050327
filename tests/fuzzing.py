"""Mutations of valid files, and an audit of what their reader does.

FUZZING_EXAMPLES sets the number of examples per reader.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZING_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
IMAGE_META = b"type: ImageDirectory\nextension: {}\nimage_list: images.lst\nschema: _schema.json\n"
LIST = b'{"image_info": {"file_name": "a.png"}, "category": "dog", "id": 0}\n'
SCHEMA = (
    b'{"columnAttributes": [{"name": "image", "type": "Bytes", "isFeature": true,'
    b' "elementType": {"typeName": "bytes", "isNullable": false},'
    b' "properties": {"mime_type": "image/png", "image_ref": "image_info"}},'
    b' {"name": "category", "type": "String", "isFeature": false,'
    b' "elementType": {"typeName": "str", "isNullable": false},'
    b' "properties": {"annotation_type": "COCO_classification",'
    b' "categories": [{"id": 0, "name": "dog"}]}}]}'
)


def mutations_of(*originals: bytes) -> st.SearchStrategy[bytes]:
    """Random bytes, or one of the originals with pieces replaced, repeated or removed."""

    @st.composite
    def mutated(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(originals))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(data)))
            end = draw(st.integers(start, min(len(data), start + 40)))
            times = draw(st.sampled_from([0, 0, 1, 2, 50]))
            between = draw(st.one_of(st.binary(max_size=8), st.sampled_from(TOKENS)))
            data = data[:start] + between + data[start:end] * times + data[end:]
        return data

    return st.one_of(mutated(), mutated(), st.binary(max_size=300))


TOKENS = (
    *(
        b"../",
        b"/etc/passwd",
        b"\0",
        b"\xff",
        b"{",
        b"[",
        b'"',
        b": ",
        b"\n",
        b"null",
        b"-1",
        b"1e999",
        b"NaN",
    ),
    *(
        b"!!python/object/apply:os.system [true]",
        b"&a [*a]",
        b"9" * 5000,
        b"[" * 3000,
        "é😀".encode(),
        b"true",
    ),
)

# ── What a reader may do ─────────────────────────────────────────────────────────────────────────

_watched: list[Callable[[str, tuple[Any, ...]], None]] = []


@contextmanager
def nothing_happens_outside(root: Path) -> Iterator[None]:
    """Check that a `with` neither opens files elsewhere, nor imports from the root, runs or
    connects.
    """
    wrong: list[str] = []
    allowed = (
        str(root),
        *map(str, {Path(path).resolve() for path in (sys.prefix, sys.base_prefix)}),
        "/proc/",
    )

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(allowed) and "/train_pytorch_model/" not in path:
                wrong.append(f"open {path}")
        elif event in (
            "os.system",
            "subprocess.Popen",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
            "os.fork",
        ):
            wrong.append(f"{event} {arguments}")
        elif event == "import" and str(arguments[0]).split(".")[0] in ("evil", "azureml"):
            wrong.append(f"import {arguments[0]}")

    if not _watched:
        sys.addaudithook(
            lambda event, arguments: [each(event, arguments) for each in _watched] and None
        )
    _watched.append(watch)
    try:
        yield
    finally:
        _watched.remove(watch)
    assert not wrong
