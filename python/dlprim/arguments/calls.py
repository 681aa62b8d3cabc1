"""What plain functions found out of their latest calls, for the next ones of the same forms."""

from __future__ import annotations

from dlprim import _core

# Of arrays and other arguments, the name of the function first among these. What is kept is what
# the arguments lead to, once all of them have been checked and none had to be converted.
# The environment says how convolutions are computed, and `set_conv_algorithm`, which clears it.
KNOWN = _core.KnownCalls(256, "DLPRIM_CONV_ALGORITHM")  # a network has fewer
