"""What primitives of fixed shape have in common: operands, plain to packed and back, schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array, Shape, contiguous, viewed
from dlprim.arguments.floats import dtype_named
from dlprim.arguments.names import dtype_name
from dlprim.arguments.packed import Packed as Packed  # which the core makes

_PASSES = ("forward", "backward_data", "backward_weights")


class Scheduled:
    """A primitive with loop nests that can be prescribed, stored and looked at."""

    _core: core.Conv2d | core.Linear | core.Rnn

    def _make(
        self,
        new_core: Callable[[], Any],
        stored_as: store.Problem,
        schedule: Mapping[str, str] | None,
    ) -> None:
        """With the schedules prescribed, or where there are none with those that are stored."""
        self._new_core, self._stored_as = new_core, stored_as
        self._core = new_core()
        if schedule is None:
            store.use_stored(self._core, stored_as)
            return
        for which, text in schedule.items():
            self._core.set_schedule(which, text)

    @property
    def flops(self) -> float:
        return self._core.flops

    @property
    def scratch_bytes(self) -> dict[str, int]:
        return self._core.scratch_bytes

    @property
    def schedules(self) -> dict[str, str]:
        return self._core.schedules

    def __str__(self) -> str:
        return self._core.describe()


Primitive = TypeVar("Primitive", bound=Scheduled)


def scheduled(primitive: Primitive, travelled: store.Travelled | None) -> Primitive:
    """A new primitive, with the schedules that came with the model that it is made for."""
    if travelled is not None:
        store.use_stored(primitive._core, primitive._stored_as, travelled)
    return primitive


class Operands(Scheduled):
    """A primitive whose operands are packed: the shapes of the arrays, and the ways between them.

    Packed arrays begin on a cache line, so that no vector that a kernel loads straddles two, and
    say in which form they are (`Packed`).
    """

    _core: core.Conv2d | core.Linear

    def __init__(self, dtype: str, layout: str) -> None:
        shapes, plain_shapes = self._core.shapes, self._core.plain_shapes
        self._dtype_name = dtype
        self.dtype = dtype_named(dtype)
        self.layout = layout
        self.src_shape: Shape = shapes["src"]
        self.dst_shape: Shape = shapes["dst"]
        # 8-bit layers have the forward pass alone.
        self.diff_weights_shape: Shape = shapes.get("diff_weights", ())
        self.x_shape: tuple[Any, ...] = plain_shapes["src"]
        self.w_shape: tuple[Any, ...] = plain_shapes["weights"]
        self.y_shape: tuple[Any, ...] = plain_shapes["dst"]

    @cached_property
    def weights_shape(self) -> Shape:
        shape: Shape = self._core.shapes["weights"]
        return shape

    def pack_src(self, x: Any, out: Array | None = None) -> Array:
        """The plain input in packed form.

        Parameters
        ----------
        x : array of the primitive's dtype, x_shape
            A non-contiguous array is copied first.
        out : ndarray, src_shape, optional
            Written and returned. Must be C-contiguous and share no memory with x.

        Returns
        -------
        ndarray of the same dtype, src_shape
            The padding of the last block of channels is zero. x itself if the packed form is the
            plain one and there is no `out`.

        Raises
        ------
        TypeError, ValueError
            x or `out` has the wrong dtype or shape, or cannot be used.
        """
        return self._core.pack("src", "x", self._plain("x", x), out)

    def pack_diff_dst(self, dy: Any, out: Array | None = None) -> Array:
        """A plain array of the result's shape in packed form.

        For gradients, residuals and results of other programs.

        Parameters
        ----------
        dy : array of the primitive's dtype, y_shape
            A non-contiguous array is copied first.
        out : ndarray, dst_shape, optional
            Written and returned. Must be C-contiguous and share no memory with dy.

        Returns
        -------
        ndarray of the same dtype, dst_shape
            As from `pack_src`.

        Raises
        ------
        TypeError, ValueError
            As for `pack_src`.
        """
        return self._core.pack("diff_dst", "dy", self._plain("dy", dy), out)

    def unpack_dst(self, dst: Any, out: Array | None = None) -> Array:
        """The result as a plain array.

        Parameters
        ----------
        dst : packed array, dst_shape
        out : ndarray of the same dtype, y_shape, optional
            Written and returned. Must be C-contiguous and share no memory with dst.

        Returns
        -------
        ndarray of the same dtype, y_shape
            A new array, with any layout.

        Raises
        ------
        TypeError, ValueError
            dst or `out` has the wrong dtype or shape, is packed differently, or cannot be used.
        """
        return self._core.unpack("dst", dst, out)

    def unpack_diff_src(self, diff_src: Any, out: Array | None = None) -> Array:
        """The gradient of src as a plain array.

        Parameters
        ----------
        diff_src : packed array, src_shape
        out : ndarray of the same dtype, x_shape, optional
            As for `unpack_dst`.

        Returns
        -------
        ndarray of the same dtype, x_shape

        Raises
        ------
        TypeError, ValueError
            As for `unpack_dst`.
        """
        return self._core.unpack("diff_src", diff_src, out)

    def unpack_diff_weights(self, diff_weights: Any, out: Array | None = None) -> Array:
        """The gradient of the weights as a plain array.

        Parameters
        ----------
        diff_weights : packed array, diff_weights_shape
            float32 or bfloat16, as from `backward_weights`.
        out : ndarray of the same dtype, w_shape, optional
            As for `unpack_dst`.

        Returns
        -------
        ndarray of the same dtype, w_shape

        Raises
        ------
        TypeError, ValueError
            As for `unpack_dst`.
        """
        return self._core.unpack("diff_weights", diff_weights, out)

    def backward_data(self, diff_dst: Any, weights: Any, out: Array | None = None) -> Array:
        """The gradient with respect to src.

        Parameters
        ----------
        diff_dst : packed array, dst_shape
            The gradient with respect to the argument of the activation. If there is an activation,
            it comes from `backward_relu` of a convolution or `backward_activation` of a linear
            layer.
        weights : packed array, weights_shape
            For a convolution in any form of `pack_weights`, for a linear layer in both.
        out : packed ndarray, src_shape, optional
            As for `forward`.

        Returns
        -------
        packed ndarray, src_shape

        Raises
        ------
        TypeError, ValueError
            As for `forward`; TypeError for an 8-bit layer.
        """
        return self._core.backward_data(diff_dst, weights, out)

    def backward_weights(
        self,
        src: Any,
        diff_dst: Any,
        out: Array | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
    ) -> Array:
        """The gradient with respect to the weights, summed over the minibatch.

        Parameters
        ----------
        src : packed array, src_shape
        diff_dst : packed array, dst_shape
            As for `backward_data`.
        out : packed ndarray, diff_weights_shape, optional
            float32, or bfloat16 for bfloat16 operands. Must share no memory with an operand.
        dtype : dtype, optional
            Of the result, `out` included: float32 by default, or bfloat16.

        Returns
        -------
        packed ndarray, diff_weights_shape
            `unpack_diff_weights` converts it to a plain array; `forward` needs another form.
            Padding of blocks is zero. In bfloat16, the zeros of padding are multiplied: an infinite
            gradient at the border gives NaN.

        Raises
        ------
        TypeError, ValueError
            As for `backward_data`.
        """
        name = "float32" if dtype is None else dtype_name("dtype", dtype)
        narrow = name == "bfloat16" and self.dtype != np.float32
        if not narrow and name != "float32":
            raise TypeError(f"dtype is {name}, expected float32 or the dtype of the operands")
        given = None if dtype is None else getattr(out, "dtype", None)
        if given is not None and (given == np.float32) == narrow:
            raise TypeError(f"out has dtype {given}, expected {name} as dtype says")
        return self._core.backward_weights(src, diff_dst, out, narrow)

    def _plain(self, name: str, value: Any) -> Array:
        return contiguous(viewed(name, value, self._dtype_name))

    def _weights(self, value: Any) -> Array:
        """Weights that are read where they lie, a file for example, or a copy of others."""
        array = viewed("w", value, self._dtype_name)
        is_dense = array.flags.c_contiguous or array.T.flags.c_contiguous
        return array if is_dense else contiguous(array)


def schedules(schedule: str | Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The loop nests that a caller prescribes, by the name of the pass; None for none.

    TypeError where something is no str; ValueError where there is no such pass.
    """
    if schedule is None:
        return None
    if isinstance(schedule, str):
        return {"forward": schedule}
    if not isinstance(schedule, Mapping):
        raise TypeError(f"schedule is of type {type(schedule).__name__}, expected a str or a dict")
    for which, text in schedule.items():
        if which not in _PASSES:
            raise ValueError(f"schedule names {which!r}, expected one of {', '.join(_PASSES)}")
        if not isinstance(text, str):
            raise TypeError(f"schedule[{which!r}] is of type {type(text).__name__}, expected a str")
    return schedule
