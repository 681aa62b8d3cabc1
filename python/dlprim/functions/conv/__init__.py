"""Convolutions along one and three axes, and transposed ones, by way of those of images."""
