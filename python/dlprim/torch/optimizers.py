"""`torch.optim` with steps in one pass over memory: SGD and AdamW.

They are PyTorch's optimisers in all but `step`: arguments, groups, hooks and states are theirs, so
that schedules work on them and state dicts go either way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

import dlprim
from dlprim import _core
from dlprim.torch.forms import array_of, form_of

_TYPES = (torch.float32, torch.bfloat16)
_MOST_STATES = 3  # of a parameter in the core


class _Update(NamedTuple):
    """Parameters with a rule of the core, its settings and a factor of their gradients."""

    rule: str
    settings: tuple[float, ...]
    scale: float
    parameters: list[torch.Tensor]
    states: list[list[torch.Tensor]]
    steps: list[int]  # how often each was updated, this time included

    def run(self, scale: float) -> None:
        copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        written: list[torch.Tensor] = []
        rows = []
        for number, (it, states) in enumerate(zip(self.parameters, self.states, strict=True)):
            axes = form_of(tuple(it.shape), it.stride()).order or tuple(range(it.dim()))
            gradient: Any = it.grad
            turned = [tensor.permute(axes) for tensor in (gradient, it, *states)]
            dense = [tensor.contiguous() for tensor in turned]
            pairs = zip(turned[1:], dense[1:], strict=True)
            copied += [(own, made) for own, made in pairs if own is not made]
            written += it, *states
            by, whole, *others = map(array_of, dense)
            missing = [None] * (_MOST_STATES - len(states))
            rows.append((whole, by, *others, *missing, None, number))
        _core.update(self.rule, rows, self.settings, self.steps, scale * self.scale)
        for own, made in copied:
            own.copy_(made)
        torch.autograd.graph.increment_version(written)


class _Fused:
    """A step of an optimiser of PyTorch whose updates the core runs."""

    param_groups: list[dict[str, Any]]
    state: Any

    @abstractmethod
    def _updates(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> Iterator[_Update]:
        """What the core does of a group, for those of its parameters that have a gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step, of all parameters that have a gradient.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss anew.

        Returns
        -------
        float or torch.Tensor or None
            The loss, of closure.

        Raises
        ------
        TypeError
            A parameter or its gradient is not on the CPU, is sparse, or of another type than
            float32 and bfloat16; nothing was updated.
        ValueError
            ``capturable`` or ``differentiable`` is asked for.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # What torch.amp.GradScaler leaves to an optimiser that is fused.
        found, scaled = (getattr(self, name, None) for name in ("found_inf", "grad_scale"))
        if found is not None and found.item():
            return loss
        scale = 1.0 if scaled is None else 1 / scaled.item()
        with dlprim.threads(torch.get_num_threads()):
            chosen = [
                [it for it in group["params"] if it.grad is not None] for group in self.param_groups
            ]
            for group, parameters in zip(self.param_groups, chosen, strict=True):
                _require_usual(group)
                _require_dense(parameters)
            for group, parameters in zip(self.param_groups, chosen, strict=True):
                for update in self._updates(group, parameters):
                    update.run(-scale if group["maximize"] else scale)
        return loss

    def _state_of(self, parameter: torch.Tensor, name: str) -> torch.Tensor:
        """A state of that name, zeros where there is none."""
        state = self.state[parameter]
        if state.get(name) is None:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        found: torch.Tensor = state[name]
        return found


class SGD(_Fused, torch.optim.SGD):
    """`torch.optim.SGD`, fused, over parameters of float32 and bfloat16 on the CPU.

    Its arguments and states are PyTorch's; ``foreach`` and ``fused`` change nothing. Numbers are
    computed in float32 and rounded where they are stored; the same bits for any number of threads.
    """

    def _updates(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> Iterator[_Update]:
        rate, momentum, decay = (float(group[it]) for it in ("lr", "momentum", "weight_decay"))
        name = "momentum_buffer"
        parts = [(1.0, parameters)]
        if momentum and group["dampening"]:  # of all but the first velocity
            first = [it for it in parameters if self.state[it].get(name) is None]
            later = [it for it in parameters if self.state[it].get(name) is not None]
            parts = [(1.0, first), (1.0 - group["dampening"], later)]
        for scale, chosen in parts:
            states = [[self._state_of(it, name)] if momentum else [] for it in chosen]
            settings = (rate, momentum, decay * scale)
            rule = "nesterov" if group["nesterov"] else "sgd"
            yield _Update(rule, settings, scale, chosen, states, [])


class AdamW(_Fused, torch.optim.AdamW):
    """`torch.optim.AdamW`, fused, over parameters of float32 and bfloat16 on the CPU.

    Its arguments and states are PyTorch's, ``amsgrad`` and ``maximize`` too; ``foreach`` and
    ``fused`` change nothing. Numbers are computed in float32 and rounded where they are stored; the
    same bits for any number of threads.
    """

    def _updates(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> Iterator[_Update]:
        names = ["exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * group["amsgrad"]]
        rate, eps, decay = (float(group[it]) for it in ("lr", "eps", "weight_decay"))
        settings = (rate, *map(float, group["betas"]), eps, decay)
        for it in parameters:
            self.state[it].setdefault("step", torch.tensor(0.0))
        counts = [self.state[it]["step"] for it in parameters]
        states = [[self._state_of(it, name) for name in names] for it in parameters]
        steps = [int(it.item()) + 1 for it in counts]
        rule = "adamw" if group.get("decoupled_weight_decay", True) else "adam"
        yield _Update(rule, settings, 1.0, parameters, states, steps)
        if counts:
            torch._foreach_add_(counts, 1)


def _require_usual(group: dict[str, Any]) -> None:
    for name in ("capturable", "differentiable"):
        if group.get(name):
            raise ValueError(f"{name} is True, expected False: dlprim runs a step as one call")


def _require_dense(parameters: Sequence[torch.Tensor]) -> None:
    for it in parameters:
        for name, tensor in (("parameter", it), ("gradient", it.grad)):
            assert tensor is not None
            if tensor.layout is not torch.strided:
                raise TypeError(f"a {name} is sparse, expected a dense one")
            if tensor.device.type != "cpu":
                raise TypeError(f"a {name} is on {tensor.device}, expected one on the CPU")
            if tensor.dtype not in _TYPES or tensor.dtype != it.dtype:
                raise TypeError(
                    f"a {name} is of {tensor.dtype}, expected torch.float32 or torch.bfloat16 of "
                    "parameters, and the same of gradients"
                )
