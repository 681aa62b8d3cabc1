"""Functions that change how long axes are: pooling to a size, interpolation, padding, joining."""
