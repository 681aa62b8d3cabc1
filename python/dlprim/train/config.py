"""What decides the result of a run, and what each model takes where no flag says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MODELS = ("mlp", "cnn", "resnet50", "vit", "lstm", "gru", "gpt")
DATA = ("digits", "text", "synthetic")
RECURRENT = ("lstm", "gru")
TRANSFORMERS = ("vit", "gpt")
LANGUAGE = (*RECURRENT, "gpt")
DEEP = (*RECURRENT, *TRANSFORMERS)  # equally wide layers, trained with AdamW
SCHEDULES = ("linear", "constant")  # of the learning rate
WIDEST = 1_000_000  # neurons of a layer; beyond it a typing error is likelier than a wish


@dataclass(frozen=True)
class TrainConfig:
    """Equal configurations give losses equal bit for bit."""

    model: str = "mlp"
    data: str = "digits"  # or the path of an .npz file
    dtype: str = "float32"  # of activations
    epochs: int = 60
    batch_size: int = 32  # samples; sequences of a language model
    hidden: tuple[int, ...] = (256,)  # neurons of every hidden layer; channels of the states
    layers: int = 1  # of a language model
    length: int = 64  # characters of a sequence
    image_size: int = 0  # pixels of a side; 0 as the data has them
    lr: float = 0.1  # learning rate of the first step
    momentum: float = 0.9
    weight_decay: float = 0.0
    noise: float = 0.4  # standard deviation, in the unit of the inputs
    shift: int = 0  # pixels that training images are moved by at most, in both directions
    seed: int = 0
    algorithm: str = "auto"  # of convolutions
    steps: int = 0  # of an epoch; 0 is one pass over the data, or a default where that is long
    schedule: str = "linear"  # to zero over all epochs; a constant rate knows of no last epoch


_RECURRENT: dict[str, Any] = dict(
    data="text", epochs=10, hidden=(512,), lr=2e-3, weight_decay=0.01, noise=0.0
)
DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "cnn": dict(epochs=60, hidden=(32, 64), lr=0.2, weight_decay=2e-3, noise=0.15, shift=1),
    "resnet50": dict(
        data="synthetic", epochs=3, batch_size=16, hidden=(), lr=0.02, weight_decay=1e-4, noise=0.0
    ),
    "vit": dict(epochs=30, hidden=(64,), layers=4, lr=3e-3, weight_decay=0.05, noise=0.15),
    "lstm": _RECURRENT,
    "gru": _RECURRENT,
    "gpt": dict(
        data="text",
        epochs=10,
        batch_size=16,
        hidden=(256,),
        layers=4,
        length=128,
        lr=1e-3,
        weight_decay=0.1,
        noise=0.0,
    ),
}


def configured(given: dict[str, Any]) -> TrainConfig:
    """The configuration of a run: what was given, then the model's defaults.

    Raises
    ------
    ValueError
        Model and data do not go together.
    """
    model = given.get("model", "mlp")
    chosen = {"model": model, **DEFAULTS[model], **given}
    config = TrainConfig(**chosen)
    is_language, is_file = config.model in LANGUAGE, config.data.endswith(".npz")
    is_text = config.data == "text" or not (is_file or config.data in DATA)
    if is_language != is_text:
        images, text = "digits, synthetic or an .npz file", "text or the path of a folder or file"
        expected = text if is_language else images
        raise ValueError(f"data is {config.data!r}, expected {expected} for {config.model}")
    return config


def default_of(name: str) -> str:
    """What a setting is where no flag says otherwise, in the models that use it."""
    shown: dict[str, list[str]] = {}
    for model in MODELS:
        config = configured({"model": model})
        value = getattr(config, name)
        if not without_effect({name: value}, config):
            values = value if isinstance(value, tuple) else (value,)
            text = " ".join(f"{it:g}" if isinstance(it, float) else str(it) for it in values)
            shown.setdefault(text, []).append(model)
    if len(shown) == 1:
        return next(iter(shown))
    return "; ".join(f"{', '.join(models)}: {text}" for text, models in shown.items())


def without_effect(given: dict[str, Any], config: TrainConfig) -> dict[str, str]:
    """Why settings that were given would change nothing in a run, by name."""
    model = config.model
    images = model in ("cnn", "resnet50", "vit")
    used = {
        "hidden": model != "resnet50",
        "layers": model in DEEP,
        "length": model in LANGUAGE,
        "image_size": images or config.data == "synthetic",
        "momentum": model not in DEEP,
        "noise": model not in LANGUAGE,
        "shift": images,
        "algorithm": images and model not in DEEP,
    }
    found = {
        name: f"the model {model} with the data {config.data} does not use it"
        for name in given
        if not used.get(name, True)
    }
    if model in DEEP and len(config.hidden) > 1:
        found["hidden"] = f"expected one number for {model}, whose layers are equally wide"
    return found
