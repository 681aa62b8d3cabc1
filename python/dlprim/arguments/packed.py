"""Arrays that say in which form they are packed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dlprim import _core


class Packed(np.ndarray[Any, Any]):
    """A packed operand: an ndarray with the name of its form.

    To NumPy it is an ndarray like any other. A primitive refuses one of another form by name, where
    the shape alone would not tell. Copies and pickles keep the name; views and results of
    arithmetic have none, and a primitive takes them at their shape's word.

    Attributes
    ----------
    packed_as : str or None
        What is where, for example ``[n2 c3 h7 w7 c16] of (2, 40, 7, 7)``: the indices as they are
        stored, the innermost last, and the shape of the plain array.
    """

    # A slot, which the core reads as quickly as an array's shape.
    __slots__ = ("_form",)
    _form: str | None

    @property
    def packed_as(self) -> str | None:
        return getattr(self, "_form", None)

    @packed_as.setter
    def packed_as(self, form: str | None) -> None:
        self._form = form

    def copy(self, order: Literal["K", "A", "C", "F"] | None = "C") -> Packed:
        """As of an ndarray."""
        made: Any = super().copy(order)
        made.packed_as = self.packed_as
        return made  # type: ignore[no-any-return]

    def __copy__(self) -> Packed:
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Packed:
        return self.copy("K")

    def __reduce__(self) -> tuple[Any, ...]:
        found: Any = super().__reduce__()
        function, arguments, state = found
        return function, arguments, (state, self.packed_as)

    def __setstate__(self, state: Any) -> None:
        plain, self.packed_as = state
        super().__setstate__(plain)


_core.set_packed_type(Packed)
