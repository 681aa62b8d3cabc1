"""A layer whose constructor's arguments are attributes of the same names."""

from __future__ import annotations

import inspect
from typing import Any

from dlprim.nn.module import Module


class Layer(Module):
    """A layer that has what its constructor took as attributes of the same names."""

    def arguments(self) -> dict[str, Any]:
        names = [it for it in inspect.signature(type(self)).parameters if it != "generator"]
        found = {name: getattr(self, name) for name in names}
        return {
            name: it is not None if name == "bias" and not isinstance(it, bool) else it
            for name, it in found.items()
        }
