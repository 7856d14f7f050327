"""Pillow's limits, warnings and log as decoding needs them, for as long as somebody decodes.

They belong to the whole process, which may be somebody else's: a served model leaves them as they
were.
"""

import logging
import re
import threading
import warnings
from typing import cast

from PIL import Image, PngImagePlugin

# Pillow warns above its limit and refuses twice as much. Ours depends on the format, read from the
# header: this is the highest of them.
MAX_IMAGE_PIXELS = 180_000_000
# Of a colour profile or a text; Pillow's 1 MiB refuses real photographs.
MAX_TEXT_CHUNK = 16 << 20

# An entry of `warnings.filters`: of large images, which `open_image` refuses, and of damage.
_IGNORE_PILLOW = ("ignore", None, Warning, re.compile(r"PIL\b"), 0)
_LOGGER = logging.getLogger("PIL")
_SILENT = logging.NullHandler()


class _PillowSettings:
    """A context for threads: the first in changes the settings, the last out restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._before: tuple[int | None, int, bool] = (None, 0, True)

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._change()
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                self._restore()

    def _change(self) -> None:
        self._before = (Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK, _LOGGER.propagate)
        Image.MAX_IMAGE_PIXELS = MAX_IMAGE_PIXELS
        PngImagePlugin.MAX_TEXT_CHUNK = MAX_TEXT_CHUNK
        # What it logs about damaged files is not for the terminal. Without a handler, `logging`
        # itself would write it there.
        _LOGGER.propagate = False
        _LOGGER.addHandler(_SILENT)
        # `filterwarnings` would have Python forget which warnings it has shown once, and
        # `catch_warnings` in several threads restores the filters of another.
        _filters().insert(0, _IGNORE_PILLOW)

    def _restore(self) -> None:
        Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK, _LOGGER.propagate = self._before
        _LOGGER.removeHandler(_SILENT)
        filters = _filters()
        if _IGNORE_PILLOW in filters:  # somebody may have replaced the list meanwhile
            filters.remove(_IGNORE_PILLOW)


def _filters() -> list[object]:
    return cast("list[object]", warnings.filters)


pillow_for_decoding = _PillowSettings()
