"""Operators of `dlprim.torch` in `torch.library`, compilers, export and autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dlprim

torch = pytest.importorskip("torch", reason="PyTorch's tensors are what they take")

from torch.nn import functional  # noqa: E402

from torch_eager import leaf, leaves, near, ours, results  # noqa: E402

pytestmark = pytest.mark.any_level

LAST = torch.channels_last


def normal(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def grown(*shape: int) -> Any:
    return normal(*shape).requires_grad_()


def weights(gates: int, layers: int, width: int = 1) -> list[Any]:
    """Of layers of 4 channels to 3."""
    runs = range(layers * width)
    inputs = [4 if run < width else 3 * width for run in runs]
    shapes = [((gates * 3, c), (gates * 3, 3), (gates * 3,), (gates * 3,)) for c in inputs]
    return [leaf(normal(*it) / 2) for run in shapes for it in run]


def frozen(tree: Any) -> Any:
    """Without gradients."""
    if isinstance(tree, list | tuple):
        return type(tree)(map(frozen, tree))
    return tree.detach() if isinstance(tree, torch.Tensor) else tree


PIXELS = ([2, 1], [1, 1, 0, 1], [1, 1], 2)
ROWS, KEYS = (2, 3, 5, 4), (2, 3, 6, 4)
MASK = torch.arange(30).reshape(5, 6) % 4 != 1
OPERATORS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "linear": ("linear", lambda: (grown(3, 2, 4), grown(5, 4), grown(5))),
    "linear without bias": ("linear", lambda: (grown(3, 4), grown(5, 4), None)),
    "conv2d": ("conv2d", lambda: (grown(2, 4, 6, 7), grown(6, 2, 3, 3), grown(6), *PIXELS)),
    "conv2d in channels-last": (
        "conv2d",
        lambda: (
            leaf(normal(2, 4, 6, 7).to(memory_format=LAST)),
            grown(6, 2, 3, 3),
            None,
            *PIXELS,
        ),
    ),
    "layer_norm": ("layer_norm", lambda: (grown(2, 3, 4), grown(3, 4), None, [3, 4], 1e-5)),
    "attention": (
        "attention",
        lambda: (grown(*ROWS), grown(*KEYS), grown(*KEYS), MASK, False, None),
    ),
    "attention of heads inside": (
        "attention",
        lambda: (
            leaf(normal(2, 5, 3, 4).transpose(1, 2)),
            grown(*KEYS),
            grown(*KEYS),
            None,
            True,
            0.5,
        ),
    ),
    "lstm": (
        "lstm",
        lambda: (grown(3, 2, 4), weights(4, 2), grown(2, 2, 3), grown(2, 2, 3), 2, False, True),
    ),
    "lstm both ways": (
        "lstm",
        lambda: (grown(3, 2, 4), weights(4, 2, 2), None, None, 2, True, True),
    ),
    "gru": ("gru", lambda: (grown(3, 2, 4), weights(3, 1), grown(1, 2, 3), 1, False, True)),
}
BACKWARD: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "linear": ("linear", lambda: (normal(3, 5), normal(3, 4), normal(5, 4), [True, False, True])),
    "conv2d": (
        "conv2d",
        lambda: (
            normal(2, 6, 3, 6),
            normal(2, 4, 6, 7),
            normal(6, 2, 3, 3),
            *PIXELS,
            [True, True, False],
        ),
    ),
    "layer_norm": (
        "layer_norm",
        lambda: (
            normal(2, 4),
            normal(2, 4),
            normal(4),
            [4],
            1e-5,
            [True, True, False],
        ),
    ),
    "attention": (
        "attention",
        lambda: (
            normal(*ROWS),
            normal(*ROWS),
            normal(*KEYS),
            normal(*KEYS),
            MASK,
            False,
            None,
            [True, False, True],
        ),
    ),
    "gru": (
        "gru",
        lambda: (
            [normal(3, 2, 3), None],
            normal(3, 2, 4),
            frozen(weights(3, 1)),
            None,
            1,
            False,
            [normal(3, 2, 3), normal(3, 2, 9), normal(3, 2, 3)],
        ),
    ),
}


def operator(name: str) -> Any:
    ours(name.removesuffix("_backward"))  # which defines it
    return getattr(torch.ops.dlprim, name).default


@pytest.mark.parametrize("case", list(OPERATORS))
def test_opcheck(case: str) -> None:
    name, operands = OPERATORS[case]
    torch.library.opcheck(operator(name), operands())
    if name in ("lstm", "gru"):  # which may keep nothing
        torch.library.opcheck(operator(name), (*frozen(operands())[:-1], False))


@pytest.mark.parametrize("case", list(BACKWARD))
def test_opcheck_of_gradients(case: str) -> None:
    name, operands = BACKWARD[case]
    torch.library.opcheck(operator(f"{name}_backward"), operands())


# ---------------------------------------------------------------- compilers and export


class Model(torch.nn.Module):
    """All functions in a row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.LayerNorm(8)
        self.project = torch.nn.Linear(8, 24)
        self.lstm = torch.nn.ParameterList(torch.nn.LSTM(8, 6).parameters())
        self.gru = torch.nn.ParameterList(torch.nn.GRU(6, 5).parameters())

    def forward(self, x: Any) -> Any:
        import dlprim.torch as own

        x = own.conv2d(x, self.conv.weight, self.conv.bias, padding="same")
        x = own.layer_norm(x.flatten(2).transpose(1, 2), (8,), self.norm.weight, self.norm.bias)
        qkv = own.linear(x, self.project.weight, self.project.bias)
        q, k, v = qkv.unflatten(-1, (3, 2, 4)).transpose(1, 3).unbind(2)
        y = own.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        y, _ = own.lstm(y, *self.lstm, batch_first=True)
        y, _ = own.gru(y, *self.gru, batch_first=True)
        return y


def theirs(model: Any, x: Any) -> Any:
    """The same by PyTorch."""
    x = functional.conv2d(x, model.conv.weight, model.conv.bias, padding="same")
    x = model.norm(x.flatten(2).transpose(1, 2))
    q, k, v = model.project(x).unflatten(-1, (3, 2, 4)).transpose(1, 3).unbind(2)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2).flatten(2).transpose(0, 1)
    how = (True, 1, 0.0, False, False, False)
    zeros = y.new_zeros(1, y.shape[1], 6)
    y = torch.lstm(y, (zeros, zeros), list(model.lstm), *how)[0]
    return torch.gru(y, zeros[..., :5].contiguous(), list(model.gru), *how)[0].transpose(0, 1)


def trained(model: Any, run: Callable[[Any], Any]) -> list[Any]:
    model.zero_grad()
    x = leaf(normal(2, 3, 4, 5))
    y = run(x)
    y.square().sum().backward()
    return [y, x.grad, *(it.grad.clone() for it in model.parameters())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dlprim"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_in_one_graph(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    ours("linear")
    model = Model()
    expected = trained(model, lambda x: theirs(model, x))
    run = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    for one, two in zip(trained(model, run), expected, strict=True):
        near(one, two, 2e-5)
    with torch.no_grad():
        near(run(normal(3, 3, 5, 6)), theirs(model, normal(3, 3, 5, 6)), 2e-5)


def test_exported_with_one_node_each() -> None:
    ours("linear")
    model = Model().eval()
    batch = torch.export.Dim("batch", min=2, max=9)
    with torch.no_grad():
        program = torch.export.export(model, (normal(2, 3, 4, 5),), dynamic_shapes=({0: batch},))
        names = [str(it.target) for it in program.graph.nodes if "dlprim" in str(it.target)]
        assert names == [
            f"dlprim.{it}.default"
            for it in ("conv2d", "layer_norm", "linear", "attention", "lstm", "gru")
        ]
        x = normal(5, 3, 4, 5)
        near(program.module()(x), theirs(model, x))


@pytest.mark.parametrize("case", list(OPERATORS))
def test_tensors_without_memory_give_such(case: str) -> None:
    def away(it: Any) -> Any:
        if isinstance(it, list):
            return [away(each) for each in it]
        return it.detach().to("meta") if isinstance(it, torch.Tensor) else it

    name, operands = OPERATORS[case]
    made = results(operator(name)(*map(away, operands())))
    expected = results(operator(name)(*operands()))
    for one, two in zip(made, expected, strict=True):
        assert one.is_meta
        assert (one.shape, one.stride(), one.dtype) == (two.shape, two.stride(), two.dtype)


def test_inference_mode() -> None:
    with torch.inference_mode():
        x = normal(3, 2, 4)
        assert ours("linear")(x, normal(5, 4)).is_inference()
        assert ours("gru")(x, normal(9, 4), normal(9, 3))[0].is_inference()


# ---------------------------------------------------------------- autocast


def test_autocast_multiplies_in_bfloat16() -> None:
    x = leaf(normal(2, 4, 6, 6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = [
            ours("conv2d")(x, normal(5, 4, 3, 3), normal(5)),
            ours("linear")(x, normal(5, 6), normal(5)),
            ours("attention")(x, x, x),
            *results(ours("lstm")(x[0], normal(12, 6), normal(12, 3))),
            *results(ours("gru")(x[0], normal(9, 6), normal(9, 3))),
        ]
        normalised = ours("layer_norm")(x, (6,), normal(6), normal(6))
    assert {it.dtype for it in made} == {torch.bfloat16}
    assert normalised.dtype == torch.float32
    torch.autograd.backward([it.float().sum() for it in made])
    assert x.grad.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        assert ours("linear")(x, normal(5, 6)).dtype == torch.float32


@pytest.mark.parametrize("backend", ["aot_eager", "dlprim"])
def test_autocast_inside_of_a_compiled_function(backend: str) -> None:
    torch._dynamo.reset()
    ours("linear")
    model = Model()
    expected = trained(model, lambda x: theirs(model, x))

    def lowered(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    made = trained(model, torch.compile(lowered, backend=backend, fullgraph=True))
    assert made[0].dtype == torch.bfloat16
    for one, two in zip(made, expected, strict=True):
        near(one, two, 5e-2)


def test_autocast_takes_operands_of_two_dtypes() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = ours("linear")(normal(3, 4).bfloat16(), normal(5, 4), normal(5))
    near(made, functional.linear(normal(3, 4).double(), normal(5, 4).double(), normal(5).double()))


# ---------------------------------------------------------------- threads, second derivatives


def test_threads_are_those_of_pytorch() -> None:
    counts = dlprim.get_num_threads(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        dlprim.set_num_threads(2)
        ours("linear")(normal(3, 4), normal(5, 4))
        assert dlprim.get_num_threads() == 2
    finally:
        dlprim.set_num_threads(counts[0])
        torch.set_num_threads(counts[1])


@pytest.mark.parametrize("case", list(OPERATORS))
def test_a_second_derivative_is_refused(case: str) -> None:
    name, operands = OPERATORS[case]
    given = operands()
    sources = leaves(given)
    (made, *_) = results(operator(name)(*given))
    (first, *_) = torch.autograd.grad(made.square().sum(), sources[:1], create_graph=True)
    sentence = f"a gradient of dlprim.torch.{name} is differentiated once more"
    with pytest.raises(RuntimeError, match=sentence):
        first.sum().backward()
