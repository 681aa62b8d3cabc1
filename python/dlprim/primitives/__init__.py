"""Primitives: shapes fixed once, packed operands, no reordering on the hot path."""
