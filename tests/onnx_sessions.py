"""Exported programs in ONNX Runtime, as their users load them."""

from functools import cache
from pathlib import Path
from typing import Literal

import onnxruntime
import pytest
from onnx import TensorProto, helper

from train_pytorch_model.export.framing import prepend_framing
from train_pytorch_model.image_classifier.spec import Framing


def session_of(model: bytes | Path, kind: str) -> onnxruntime.InferenceSession:
    """The program that takes an input of that kind."""
    options = onnxruntime.SessionOptions()
    if kind == "file":
        extensions = pytest.importorskip("onnxruntime_extensions")
        options.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@cache
def framing_alone(framing: Framing, kind: Literal["image", "file"]) -> onnxruntime.InferenceSession:
    """A program that only frames: its input → (1, 3, H, W), uint8."""
    frames = [
        helper.make_tensor_value_info(
            name, TensorProto.UINT8, ["n", 3, framing.height, framing.width]
        )
        for name in ("in", "out")
    ]
    identity = helper.make_graph(
        [helper.make_node("Identity", ["in"], ["out"])], "g", frames[:1], frames[1:]
    )
    network = helper.make_model(
        identity, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]
    )
    return session_of(prepend_framing(network, framing, kind).SerializeToString(), kind)
