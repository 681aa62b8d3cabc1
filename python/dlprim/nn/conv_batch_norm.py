"""A convolution and the batch normalisation behind it: one convolution for inference."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.arguments.scalars import flag
from dlprim.nn.context import Images
from dlprim.nn.conv import Conv2d, Fused, Stamp
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.parameter import FloatArray
from dlprim.nn.passes import backward_pass, forward_pass


class ConvBatchNorm(Module):
    """A convolution, batch normalisation, and the residual and relu that may follow.

    Parameters
    ----------
    conv : Conv2d
    norm : BatchNorm2d
    names : (str, str)
        Of the two in the state dict.

    Raises
    ------
    TypeError, ValueError
        conv or norm is no such layer or in another container, conv has an activation, which would
        stand between the two, or names are not two that differ.
    """

    takes_images = True
    of_class = ("conv", "norm")

    def __init__(self, conv: Conv2d, norm: BatchNorm2d, names: tuple[str, str]) -> None:
        super().__init__()
        for name, layer, kind in (("conv", conv, Conv2d), ("norm", norm, BatchNorm2d)):
            if not isinstance(layer, kind):
                raise TypeError(
                    f"{name} is of type {type(layer).__name__}, expected a "
                    f"dlprim.nn.{kind.__name__}"
                )
        if conv.activation is not None:
            raise ValueError(
                f"conv has activation={conv.activation!r}, expected None: the normalisation comes "
                "first, and BatchNorm2d takes the activation"
            )
        if (
            not isinstance(names, tuple | list)
            or not all(isinstance(it, str) for it in names)
            or len(names) != 2
            or names[0] == names[1]
        ):
            raise ValueError(f"names is {names!r}, expected two names that differ")
        self.conv, self.norm, self.names = conv, norm, tuple(names)
        self._contain()
        self.use(self.context)

    def arguments(self) -> dict[str, Any]:
        return {"conv": self.conv, "norm": self.norm, "names": self.names}

    def _contained(self) -> dict[str, Module]:
        return {"conv": self.conv, "norm": self.norm}

    def children(self) -> dict[str, Module]:
        return self._and_others({self.names[0]: self.conv, self.names[1]: self.norm})

    @property
    def result_name(self) -> str:
        return self.name or self.norm.name

    def traced(self, x: Any, residual: Any = None) -> Any:
        return self.norm(self.conv(x), residual)

    @forward_pass
    def forward(
        self,
        x: Images,
        training: bool | None = None,
        residual: Array | None = None,
        into: bool = False,
    ) -> Images:
        """With ``into`` the result takes the place of the residual."""
        into = flag("into", into)
        if not training:
            return self._infer(x, residual, residual if into else None)
        between = self.conv.forward(x, True)
        self.context.observe(self.conv.name, between)
        return self.norm.forward(between, True, residual, residual if into else None)

    def infer_into(self, x: Images, out: Array, residual: Array | None = None) -> None:
        self._infer(x, residual, out)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images | None:
        return self.backward_branches(dy, ready)[0]

    def backward_branches(
        self, dy: Images, ready: Ready | None = None
    ) -> tuple[Images | None, Array | None]:
        """The gradients with respect to x and, where there was one, to the residual."""
        between, diff_residual = self.norm.backward_branches(dy, ready)
        return self.conv.backward(between, ready), diff_residual

    def _infer(self, x: Images, residual: Array | None, out: Array | None) -> Images:
        conv, norm = self.conv, self.norm
        current = (
            conv.weight.current,
            None if conv.bias is None else conv.bias.current,
            norm.weight.current,
            norm.bias.current,
            norm.mean.current,
            norm.var.current,
            norm.eps,
        )
        return conv.infer(x, self, current, Fused(norm.activation, residual, out))

    def stamp(self) -> Stamp:
        """Another one whenever what `folded` is made of is."""
        norm = self.norm
        arrays = (norm.weight, norm.bias, norm.mean, norm.var)
        return (*self.conv.stamp(), *(it.version for it in arrays), norm.eps)

    def folded(self) -> tuple[FloatArray, FloatArray | None]:
        """The convolution with the normalisation in it."""
        conv, norm = self.conv, self.norm
        return dlprim.fold_batch_norm(
            conv.weight.held,
            None if conv.bias is None else conv.bias.held,
            norm_weight=norm.weight.held,
            norm_bias=norm.bias.held,
            running_mean=norm.mean.held,
            running_var=norm.var.held,
            eps=norm.eps,
        )
