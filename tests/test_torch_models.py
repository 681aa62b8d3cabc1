"""Models for images, compiled by `dlprim.torch` and run eagerly: results, gradients, buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from torch_compare import close, compiled, run_both, tensors  # noqa: E402

pytestmark = pytest.mark.any_level


def block(c: int, k: int, stride: int = 1, groups: int = 1, size: int = 3) -> nn.Sequential:
    conv = nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(k))


class Residual(nn.Module):
    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = block(c, k, stride), block(k, k)
        self.short = block(c, k, stride, size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.short(x))


class Resnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        self.body = nn.Sequential(Residual(16, 16, 1), Residual(16, 24, 2))
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.adaptive_avg_pool2d(self.body(self.stem(x)), 1)
        return self.head(torch.flatten(y, 1))


class Inverted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep, self.narrow = (
            block(8, 24, size=1),
            block(24, 24, 1, 24),
            block(24, 8, size=1),
        )
        self.stem, self.head = block(3, 8, 2), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu6(self.stem(x))
        x = x + self.narrow(functional.relu6(self.deep(functional.hardtanh(self.wide(x), 0, 6))))
        return self.head(x.mean((2, 3)))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = functional.relu(self.down(x))
        low = functional.leaky_relu(self.inner(functional.max_pool2d(high, 2)), 0.1)
        return torch.sigmoid(self.out(torch.cat([high, self.up(low)], 1)))


class Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Dropout(0.5), nn.Linear(16 * 7 * 7, 12), nn.Tanh(), nn.Linear(12, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(self.body(x), 1)


class Convnext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.deep = nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)
        self.scale = nn.Parameter(torch.full((16,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x)
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 1, 32))
        self.place = nn.Parameter(torch.randn(1, 17, 32))
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(len(y), -1, -1), y], 1) + self.place
        return self.head(self.body(y)[:, 0])


class Squeezed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, 2, 1, groups=1), nn.GroupNorm(4, 16)
        self.less, self.more = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.hardswish(self.norm(self.conv(x)))
        gate = functional.silu(self.less(x.mean((2, 3), keepdim=True)))
        return x * functional.hardsigmoid(self.more(gate))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * it, 4, 3, padding=1) for it in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = torch.cat([x, functional.mish(layer(x))], 1)
        y = functional.interpolate(x, scale_factor=2, mode="nearest")
        parts = y.chunk(3, 1)
        return parts[0] * parts[2], functional.pad(x, (1, 2, 0, 1)).amax((2, 3))


class Resized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.conv(x)
        more = functional.interpolate(y, scale_factor=2, mode="bilinear")
        return (
            more,
            y[:, :, torch.tensor([0, 2])],
            y[torch.tensor([[0], [1]]), torch.tensor([0, 3])],
        )


MODELS = [Resized, Resnet, Inverted, Unet, Vgg, Convnext, Vit, Squeezed, Dense]


@pytest.mark.parametrize("make", MODELS, ids=lambda it: it.__name__.lower())
def test_a_model_is_as_it_is_eagerly(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = make(), torch.randn(2, 3, 32, 32)
    run_both(model, lambda: (x,))


@pytest.mark.parametrize("make", [Resnet, Convnext], ids=lambda it: it.__name__.lower())
def test_channels_last_stays_so(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    last = {"memory_format": torch.channels_last}
    model, x = make().to(**last), torch.randn(2, 3, 32, 32).to(**last)
    run_both(model, lambda: (x,))
    with torch.no_grad():
        y, z = torch.compile(model, backend="dlprim")(x), model(x)
    assert y.stride() == z.stride()


ATTENTIONS: dict[str, dict[str, Any]] = {
    "with weights": {},
    "with weights of each head": {"average_attn_weights": False},
    "without weights": {"need_weights": False},
    "of some keys": {"key_padding_mask": torch.arange(10).reshape(2, 5) % 4 == 3},
    "masked": {"attn_mask": torch.ones(5, 5).triu(1).bool(), "need_weights": False},
    "with numbers": {"attn_mask": torch.linspace(-1, 1, 25).reshape(5, 5)},
}


@pytest.mark.parametrize("how", list(ATTENTIONS))
def test_attention_of_a_module_is_ours_in_inference(how: str) -> None:
    from dlprim.torch.explanation import listening

    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    torch._dynamo.reset()
    with torch.no_grad(), listening() as found:
        ours = compiled(lambda x: model(x, x, x, **ATTENTIONS[how]))(x)
    # PyTorch's own short cut takes numbers that are added for a mask.
    expected = model(x.requires_grad_(), x, x, **ATTENTIONS[how])
    for one, two in zip(tensors(ours), tensors(expected), strict=True):
        close(one, two, 1e-5)
    assert not [it for it in found[0].partition.reasons.values() if "no rule" in it]


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("masked", ["all", "keys", "causal", "both"])
def test_a_layer_of_an_encoder_is_ours_in_inference(
    norm_first: bool, activation: str, masked: str
) -> None:
    from dlprim.torch.explanation import listening

    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(
        8, 2, 16, norm_first=norm_first, activation=activation, batch_first=True
    ).eval()
    x, how = torch.randn(2, 5, 8), {}
    if masked in ("keys", "both"):
        how["src_key_padding_mask"] = torch.arange(10).reshape(2, 5) % 4 == 3
    if masked in ("causal", "both"):
        how["src_mask"] = torch.ones(5, 5).triu(1).bool()
    torch._dynamo.reset()
    with torch.no_grad(), listening() as found:
        ours = compiled(lambda x: model(x, **how))(x)
    close(ours, model(x.requires_grad_(), **how), 1e-5)
    assert not [it for it in found[0].partition.reasons.values() if "no rule" in it]
