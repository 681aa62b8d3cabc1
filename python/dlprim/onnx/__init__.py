"""Models in ONNX's format, as networks that run."""
