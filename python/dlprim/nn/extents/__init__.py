"""Layers that change how long axes are: pooling to a size, upsampling, padding, joining."""
