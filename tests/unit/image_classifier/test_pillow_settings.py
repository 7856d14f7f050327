"""Pillow's settings: those of decoding while somebody decodes, and the process's otherwise."""

import io
import json
import logging
import subprocess
import sys
import threading
import warnings

import pytest
from PIL import Image, PngImagePlugin
from tests.painting import encode, paint

from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.image_classifier.pillow_settings import (
    MAX_IMAGE_PIXELS,
    MAX_TEXT_CHUNK,
    pillow_for_decoding,
)

PRINT_SETTINGS = """
import json, logging, warnings
import pandas, torch  # which have filters of their own
from PIL import Image, PngImagePlugin

def settings():
    log = logging.getLogger("PIL")
    return [
        Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK, list(map(str, warnings.filters)),
        log.propagate, log.level, log.disabled, len(log.handlers), logging.getLogger().level,
    ]

before = settings()
import train_pytorch_model.image_classifier.serving
print(json.dumps([before, settings()]))
"""


def settings() -> tuple[object, ...]:
    log = logging.getLogger("PIL")
    filters = tuple(warnings.filters)
    return (Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK, log.propagate, filters)


def test_importing_the_classifier_changes_nothing_of_pillow_warnings_or_logging() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PRINT_SETTINGS], capture_output=True, text=True, check=True
    )
    before, after = json.loads(ended.stdout)
    assert after == before


def test_decoding_leaves_the_settings_as_they_were() -> None:
    before = settings()
    decode(io.BytesIO(encode(paint("red", 1))))
    assert settings() == before


def test_while_somebody_decodes_the_settings_are_those_of_decoding() -> None:
    before = settings()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pillow_for_decoding:
            with pillow_for_decoding:
                pass
            assert settings()[:3] == (MAX_IMAGE_PIXELS, MAX_TEXT_CHUNK, False)
            warnings.warn_explicit("damaged", UserWarning, "Image.py", 1, module="PIL.Image")
            warnings.warn_explicit("ours", UserWarning, "ours.py", 1, module="ours")
    assert [str(warning.message) for warning in caught] == ["ours"]
    assert settings() == before


def test_the_last_of_several_threads_restores_the_settings() -> None:
    before = settings()
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with pillow_for_decoding:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    entered.wait()
    with pillow_for_decoding:
        pass
    assert Image.MAX_IMAGE_PIXELS == MAX_IMAGE_PIXELS
    leave.set()
    thread.join()
    assert settings() == before


def test_a_warning_that_was_shown_once_is_not_shown_again() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        registry: dict[str | tuple[str, type[Warning], int], int] = {}
        for _ in range(2):
            warnings.warn_explicit("once", UserWarning, "a.py", 1, registry=registry)
            decode(io.BytesIO(encode(paint("red", 1))))
    assert len(caught) == 1


def test_filters_that_somebody_replaces_meanwhile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with pillow_for_decoding:
        monkeypatch.setattr(warnings, "filters", [])
    assert list(warnings.filters) == []
