"""Attention of several heads, blocks of transformers, and where elements of sequences stand."""
