"""What the functions of `dlprim.torch` refuse, by the name of the argument."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch's tensors are what they take")

from torch_eager import ours  # noqa: E402

pytestmark = pytest.mark.any_level


def normal(*shape: int) -> Any:
    return torch.randn(shape)


CALLS: dict[str, list[tuple[str, Any]]] = {
    "linear": [("input", normal(3, 4)), ("weight", normal(5, 4)), ("bias", normal(5))],
    "conv2d": [
        ("input", normal(2, 3, 5, 5)),
        ("weight", normal(4, 3, 3, 3)),
        ("bias", normal(4)),
    ],
    "layer_norm": [("input", normal(3, 4)), ("normalized_shape", [4]), ("weight", normal(4))],
    "attention": [
        ("query", normal(2, 3, 5, 4)),
        ("key", normal(2, 3, 6, 4)),
        ("value", normal(2, 3, 6, 4)),
        ("attn_mask", normal(5, 6)),
    ],
    "lstm": [
        ("input", normal(3, 2, 4)),
        ("weight_ih", normal(12, 4)),
        ("weight_hh", normal(12, 3)),
    ],
    "gru": [("input", normal(3, 2, 4)), ("weight_ih", normal(9, 4)), ("weight_hh", normal(9, 3))],
}
REFUSED = [
    (lambda it: it.double(), "is of torch.float64, expected torch.float32 or torch.bfloat16"),
    (lambda it: it.to(torch.complex64), "is of torch.complex64, expected torch.float32"),
    (lambda it: it.half(), "is of torch.float16, expected torch.float32"),
    (lambda it: it.to_sparse(), "is torch.sparse_coo, expected a dense tensor"),
    (lambda it: it.numpy(), "is of type ndarray, expected a torch.Tensor"),
]


@pytest.mark.parametrize("name", list(CALLS))
def test_other_tensors_are_refused_by_name(name: str) -> None:
    for argument, operand in CALLS[name]:
        if not isinstance(operand, torch.Tensor):
            continue
        for change, sentence in REFUSED:
            given = dict(CALLS[name]) | {argument: change(operand)}
            label = rf"{argument}(\[0\])? {sentence}"
            if name in ("lstm", "gru") and "ndarray" in sentence and argument != "input":
                continue  # taken for a sequence
            with pytest.raises(TypeError, match=label):
                ours(name)(**given)


@pytest.mark.parametrize("name", list(CALLS))
def test_tensors_elsewhere_are_refused(name: str) -> None:
    """As far as a machine without another device can tell."""
    from torch._subclasses import FakeTensorMode

    ours(name)
    with FakeTensorMode(allow_non_fake_inputs=True):
        first, operand = CALLS[name][0]
        away = torch.empty(operand.shape, device="cuda")
        with pytest.raises(TypeError, match=f"{first} is on cuda:0, expected a tensor on the CPU"):
            ours(name)(**dict(CALLS[name]) | {first: away})


@pytest.mark.parametrize(
    ("name", "wrong", "sentence"),
    [
        ("linear", {"input": normal(3, 5)}, r"\(3, 5\), expected \(\.\.\., C\) with C = 4"),
        ("linear", {"weight": normal(5)}, r"weight has shape \(5,\), expected \(K, C\)"),
        ("linear", {"bias": normal(4)}, r"bias has shape \(4,\), expected \(K\) with K = 5"),
        ("linear", {"weight": normal(5, 4).bfloat16()}, "weight is of torch.bfloat16, expected"),
        ("conv2d", {"input": normal(5, 5)}, r"input has shape \(5, 5\), expected \(N, C, H, W\)"),
        ("conv2d", {"groups": 2}, r"weight has shape \(4, 3, 3, 3\) and groups is 2, expected"),
        ("conv2d", {"stride": 0}, "stride is 0, expected one or two integers of at least 1"),
        ("conv2d", {"padding": "all"}, "padding is 'all', expected integers, 'valid' or 'same'"),
        ("conv2d", {"padding": "same", "stride": 2}, r"stride is \[2, 2\], expected a stride of 1"),
        ("conv2d", {"dilation": 3}, r"weight has shape \(4, 3, 3, 3\), expected windows of 1 to"),
        ("layer_norm", {"normalized_shape": [3]}, r"normalized_shape is \(3,\), expected one that"),
        ("layer_norm", {"weight": normal(5)}, r"weight has shape \(5,\), expected \(4,\)"),
        ("layer_norm", {"eps": -1.0}, "eps is -1.0, expected a finite number of at least 0"),
        ("attention", {"dropout_p": 0.1}, "dropout_p is 0.1, expected 0"),
        ("attention", {"key": normal(2, 1, 6, 4)}, "key has 1 heads and query has 3, expected"),
        ("attention", {"key": normal(2, 3, 6, 5)}, r"key has shape .*, expected .* D = 4"),
        ("attention", {"value": normal(2, 3, 7, 4)}, r"value has shape .*, expected .*K = 6"),
        ("attention", {"attn_mask": normal(7)}, r"attn_mask has shape \(7,\), expected what broad"),
        ("attention", {"attn_mask": normal(5, 6).requires_grad_()}, "attn_mask requires"),
    ],
)  # fmt: skip
def test_wrong_operands_are_refused(name: str, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        ours(name)(**dict(CALLS[name]) | wrong)
