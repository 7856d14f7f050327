"""Exported programs in ONNX Runtime, as their users load them."""

from pathlib import Path

import onnxruntime
import pytest


def session_of(model: bytes | Path, kind: str) -> onnxruntime.InferenceSession:
    """The program that takes an input of that kind."""
    options = onnxruntime.SessionOptions()
    if kind == "file":
        extensions = pytest.importorskip("onnxruntime_extensions")
        options.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
