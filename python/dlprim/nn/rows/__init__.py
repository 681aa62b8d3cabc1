"""Layers of rows: softmax, normalisation and activations."""
