"""The parts of `export`: a network with its framing as ONNX, made smaller, and compared."""
