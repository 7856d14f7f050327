"""What the program has logged within a test."""

import logging

import pytest


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
