"""The parts of `export`: a network with its framing as ONNX, quantized, and compared."""
