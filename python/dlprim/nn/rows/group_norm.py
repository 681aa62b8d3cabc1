"""Normalisation of channels and groups of them as layers."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.arguments.scalars import flag, integer, real
from dlprim.nn.calls import label
from dlprim.nn.initial import filled, zeros
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter


class ChannelNorm(Module):
    """What `GroupNorm` and `InstanceNorm2d` share.

    Attributes
    ----------
    axes : int
        Of the class: how many x has; 0 for two or more.
    """

    axes = 0

    def __init__(self, groups: int, channels: int, eps: float, affine: bool) -> None:
        super().__init__()
        self._groups, self._channels = groups, channels
        self.eps = real("eps", eps, 0)
        is_affine = flag("affine", affine)
        self.weight = Parameter(filled(channels, 1)) if is_affine else None
        self.bias = Parameter(zeros(channels)) if is_affine else None

    def forward(self, x: Any) -> Any:
        self._require_channels(x.shape)
        return dlprim.group_norm(x, self._groups, self.weight, self.bias, self.eps)

    def _require_channels(self, shape: tuple[int, ...]) -> None:
        fits = len(shape) == self.axes if self.axes else len(shape) >= 2
        if not fits or shape[1] != self._channels:
            others = "H, W" if self.axes else "..."
            raise ValueError(
                f"x of {label(self)} has shape {shape}, expected (N, {self._channels}, {others})"
            )


class GroupNorm(ChannelNorm):
    """Normalisation of groups of channels; see `dlprim.group_norm`.

    Arguments are those of `torch.nn.GroupNorm`. weight is 1 and bias 0 at first.

    Parameters
    ----------
    num_groups : int
    num_channels : int
        The second axis of x; num_groups divides it.
    eps : float
    affine : bool
        Whether there are parameters.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, (num_channels,), whatever the dtype of activations.

    Raises
    ------
    TypeError, ValueError
        num_groups is no divisor of num_channels, eps is negative or no number, or affine no bool.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        groups = integer("num_groups", num_groups, 1)
        channels = integer("num_channels", num_channels, 1)
        if channels % groups:
            raise ValueError(
                f"num_groups is {groups}, expected a divisor of num_channels = {channels}"
            )
        super().__init__(groups, channels, eps, affine)

    @property
    def num_groups(self) -> int:
        return self._groups

    @property
    def num_channels(self) -> int:
        return self._channels

    def arguments(self) -> dict[str, Any]:
        return {
            "num_groups": self.num_groups,
            "num_channels": self.num_channels,
            "eps": self.eps,
            "affine": self.weight is not None,
        }


class InstanceNorm2d(ChannelNorm):
    """Normalisation of each channel, of (N, C, H, W); see `instance_norm`.

    Defaults are those of `torch.nn.InstanceNorm2d`. There are no running statistics: momentum and
    track_running_stats are missing, and what stands behind eps goes by name.

    Parameters
    ----------
    num_features : int
        C.
    eps : float
    affine : bool
        Whether there are parameters.

    Attributes
    ----------
    weight, bias : Parameter or None
        float32, (num_features,), 1 and 0 at first.

    Raises
    ------
    TypeError, ValueError
        num_features is no integer of at least 1, eps is negative or no number, or affine no bool.
    """

    axes = 4

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False) -> None:
        channels = integer("num_features", num_features, 1)
        super().__init__(channels, channels, eps, affine)

    @property
    def num_features(self) -> int:
        return self._channels

    def arguments(self) -> dict[str, Any]:
        affine = self.weight is not None
        return {"num_features": self.num_features, "eps": self.eps, "affine": affine}
