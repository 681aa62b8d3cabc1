"""Functions of `dlprim.torch` past PyTorch's dispatcher: who sees operators, what autograd does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch's tensors are what they take")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from torch_eager import ours  # noqa: E402

pytestmark = pytest.mark.any_level


def grown(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


CALLS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "linear": lambda: (grown(3, 4), grown(5, 4), grown(5)),
    "conv2d": lambda: (
        torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_(),
        grown(6, 4, 3, 3),
        grown(6),
    ),
    "layer_norm": lambda: (grown(3, 4), (4,), grown(4), grown(4)),
    "attention": lambda: (grown(2, 3, 5, 4), grown(2, 3, 6, 4), grown(2, 3, 6, 4)),
}


@pytest.fixture(params=list(CALLS))
def call(request: pytest.FixtureRequest) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    return ours(request.param), CALLS[request.param]()


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_the_operator_and_gets_the_same(call: Any) -> None:
    function, operands = call
    alone = function(*operands)
    with Seen() as seen:
        found = function(*operands)
    assert f"dlprim.{function.__name__}.default" in seen.names
    torch.testing.assert_close(found, alone, rtol=0, atol=0)


def test_a_profiler_sees_the_operator(call: Any) -> None:
    function, operands = call
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        function(*operands)
    assert f"dlprim::{function.__name__}" in {it.key for it in found.key_averages()}


def test_results_may_be_written_to_and_gradients_follow(call: Any) -> None:
    function, operands = call
    y = function(*operands)
    y.relu_().sum().backward()
    found = [it.grad for it in operands if isinstance(it, torch.Tensor)]
    again = [it.detach().clone().requires_grad_() if isinstance(it, torch.Tensor) else it
             for it in operands]  # fmt: skip
    with Seen():
        function(*again).relu().sum().backward()
    expected = [it.grad for it in again if isinstance(it, torch.Tensor)]
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_hooks_see_what_is_saved(call: Any) -> None:
    function, operands = call
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda it: it):
        function(*operands).sum().backward()
    assert packed


def test_an_operand_that_was_written_since_is_refused(call: Any) -> None:
    function, operands = call
    y = function(*operands)
    with torch.no_grad():
        operands[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_second_derivative_is_refused(call: Any) -> None:
    function, operands = call
    y = function(*operands)
    (slope,) = torch.autograd.grad(y.sum(), operands[0], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once more, expected one derivative"):
        slope.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_tangents_reach_the_operator_which_has_none(call: Any) -> None:
    function, operands = call
    with forward_ad.dual_level():
        first = forward_ad.make_dual(operands[0].detach(), torch.ones_like(operands[0]))
        with pytest.raises(NotImplementedError, match="forward"):
            function(first, *operands[1:])


def test_tensors_of_another_class_reach_their_own_handler() -> None:
    names: list[str] = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.randn(3, 4).as_subclass(Logged)
    made = ours("linear")(x, torch.randn(5, 4))
    assert isinstance(made, Logged)
    assert any("linear" in it for it in names)


def test_a_wrong_shape_is_named_as_the_operator_names_it() -> None:
    with pytest.raises(ValueError, match=r"input has shape \(3, 5\), expected \(\.\.\., C\)"):
        ours("linear")(torch.randn(3, 5), torch.randn(5, 4))
