"""Import it first: the process begins again with what --isa and --threads ask of its libraries."""

from dlprim.bench.held import add_to, hold

__all__ = ["add_to"]

hold()
