"""Functions on plain arrays: PyTorch's shapes and defaults, arrays in and out."""
