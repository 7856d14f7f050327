"""Exported programs, run by ONNX Runtime."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

Program = Callable[[np.ndarray], np.ndarray]
"""An exported program: its input → probabilities (images, categories), float32."""

OUTPUT = "probabilities"
EXTENSIONS = "com.microsoft.extensions"  # the operators of onnxruntime-extensions


def load_program(model: "onnx.ModelProto") -> Program:
    """Return the program, in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Idle threads would compute on, beside another program and whatever else the machine does.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if any(operators.domain == EXTENSIONS for operators in model.opset_import):
        import onnxruntime_extensions

        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (only_input,) = session.get_inputs()

    def run(value: np.ndarray) -> np.ndarray:
        probabilities: np.ndarray = session.run([OUTPUT], {only_input.name: value})[0]
        return probabilities

    return run
