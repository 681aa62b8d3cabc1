"""An array in a trace: it knows its shape and dtype and speaks NumPy's protocols."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from dlprim.arguments.traced import Held, Traced, lifted
from dlprim.graph.graph import Value
from dlprim.tracing.refusals import node_name, refuse, running_function, user_line
from dlprim.tracing.tracer import Tracer, is_written

Implementation = Callable[..., Any]
# What stands for functions of NumPy, and for public ones of dlprim by name; modules fill them.
UFUNCS: dict[np.ufunc, Implementation] = {}
METHODS: dict[tuple[np.ufunc, str], Implementation] = {}
FUNCTIONS: dict[Any, Implementation] = {}
LAYERS: dict[str, Implementation] = {}


def layer(function: Implementation) -> Implementation:
    """Makes a function what stands for the public one of dlprim that has its name."""
    LAYERS[function.__name__] = function
    return function


def implements(*functions: Any) -> Callable[[Implementation], Implementation]:
    """Makes a function what stands for functions of NumPy, with their arguments.

    Those that not every NumPy has are given by name.
    """
    known = [getattr(np, it, None) if isinstance(it, str) else it for it in functions]

    def named(function: Implementation) -> Implementation:
        FUNCTIONS.update({it: function for it in known if it is not None})
        return function

    return named


class TracedArray(Traced, NDArrayOperatorsMixin):
    """An array of which only shape and dtype are known.

    Attributes
    ----------
    tracer : Tracer
    value : Value
    is_weak : bool
        Whether it gives way to the type of an array, as Python's numbers do.
    argument : str
        Of the function, or empty.
    is_shared : bool
        Whether another array would lie in the same memory.
    held : Held or None
        What it is where that outlives the call.
    """

    __slots__ = ("argument", "held", "is_shared", "is_weak", "tracer", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tracer: Tracer, value: Value, is_weak: bool = False) -> None:
        self.tracer, self.value, self.is_weak = tracer, value, is_weak
        self.argument, self.is_shared = "", False
        self.held: Held | None = None

    def __repr__(self) -> str:
        return f"<traced {self.dtype}{list(self.shape)}>"

    # ------------------------------------------------------------ what is known

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def itemsize(self) -> int:
        return self.value.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.value.nbytes

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> TracedArray:
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[TracedArray]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[place] for place in range(self.shape[0]))

    # ------------------------------------------------------------ protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        self.tracer.build.name = node_name()
        out = lifted(self.tracer, named.pop("out", None))
        found = UFUNCS.get(ufunc) if method == "__call__" else METHODS.get((ufunc, method))
        name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        if found is None:
            refuse(f"{name} cannot be traced", "another function of NumPy")
        if method == "__call__" and named.keys() - {"dtype"}:
            refuse(f"{name} is called with {', '.join(named)}", "arrays, and dtype at most")
        result = found(*lifted(self.tracer, inputs), **lifted(self.tracer, named))
        return result if out is None else _written(name, out, result)

    def __array_function__(
        self, function: Any, types: Any, given: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        self.tracer.build.name = node_name()
        found = FUNCTIONS.get(function)
        if found is None:
            module = str(getattr(function, "__module__", "numpy")).replace("numpy", "np", 1)
            name = f"{module}.{getattr(function, '__name__', function)}"
            refuse(f"{name} cannot be traced", "functions that docs/gradients.md lists")
        given, named = lifted(self.tracer, (given, named))
        if named.get("out") is not None:
            out = named.pop("out")
            return _written(f"np.{function.__name__}", (out,), found(*given, **named))
        named.pop("out", None)
        return found(*given, **named)

    def __array__(self, *given: Any, **named: Any) -> NoReturn:
        refuse(
            "a traced array is made one of NumPy's (by np.array, np.asarray, writing into an array "
            "or a function that takes no traced ones)",
            "the traced array itself, and np.stack to make one of several",
        )

    def refuse(self) -> NoReturn:
        refuse(
            f"dlprim.{running_function()} cannot be traced",
            "functions that docs/gradients.md lists",
        )

    def called(self, function: str, given: Any, named: dict[str, Any]) -> Any:
        """What a public function of dlprim gives."""
        self.tracer.build.name = node_name()
        found = LAYERS.get(function)
        if found is None:
            refuse(f"dlprim.{function} cannot be traced", "functions that docs/gradients.md lists")
        for name in ("out", "dtype"):
            if named.get(name) is not None:
                refuse(f"dlprim.{function} is called with {name}", "None, and a new array")
        plain = {name: it for name, it in named.items() if name not in ("out", "dtype")}
        extra = plain.keys() - inspect.signature(found).parameters.keys()
        if extra:
            refuse(f"dlprim.{function} is called with {', '.join(sorted(extra))}", "it left out")
        return found(*lifted(self.tracer, tuple(given)), **lifted(self.tracer, plain))

    def knows(self, function: str) -> bool:
        return function in LAYERS

    # ------------------------------------------------------------ what is not known

    def _refuse_number(self, what: str, expected: str) -> NoReturn:
        refuse(f"{what} of a traced array, whose elements are known in a run alone", expected)

    def __bool__(self) -> bool:
        self._refuse_number(
            "an if, while, and, or or not asks for the truth",
            "np.where, np.logical_and or what follows from shapes",
        )

    def __int__(self) -> int:
        self._refuse_number("int() or an index asks for an element", "arrays throughout")

    __index__ = __int__

    def __float__(self) -> float:
        self._refuse_number("float() or math asks for an element", "functions of NumPy")

    def __complex__(self) -> complex:
        self._refuse_number("complex() asks for an element", "real arrays")

    def __contains__(self, item: Any) -> bool:
        self._refuse_number("in asks for elements", "np.any(x == item)")

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.argument:
            refuse(f"elements of argument {self.argument} are written", "a new array")
        refuse("elements of a traced array are written", "np.where, np.concatenate or np.stack")

    def item(self, *place: Any) -> NoReturn:
        self._refuse_number("item() asks for an element", "x[place], which is an array")

    def tolist(self) -> NoReturn:
        self._refuse_number("tolist() asks for elements", "arrays throughout")

    def __getattr__(self, name: str) -> Any:
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            refuse(f"{name} of a traced array is not there", "another attribute or method")
        raise AttributeError(f"a traced array has no attribute {name!r}")

    def __getitem__(self, key: Any) -> Any:
        from dlprim.tracing.functions.indexing import indexed  # which makes arrays

        self.tracer.build.name = node_name()
        return indexed(self, lifted(self.tracer, key))

    def replace(self, name: str, other: Any) -> TracedArray:
        """Takes the elements of another: what ``x += other`` does to memory of its own."""
        if self.argument:
            refuse(f"{name} writes into argument {self.argument}", "a new array")
        if self.is_shared:
            refuse(f"{name} writes into memory that another array has too", "a new array")
        if other.shape != self.shape:
            raise ValueError(
                f"{user_line()}: {name} writes {list(other.shape)} into {list(self.shape)}"
            )
        if not is_written(other, self.dtype):
            raise TypeError(f"{user_line()}: {name} writes {other.dtype} into {self.dtype}")
        self.value = self.tracer.cast(other.value, self.dtype)
        return self


def _written(name: str, out: tuple[Any, ...], result: Any) -> Any:
    """The result in an array that is given for it."""
    (given,) = out
    if not isinstance(given, TracedArray):
        refuse(f"{name} writes a traced array into one of NumPy's", "a new array")
    return given.replace(name, result)
