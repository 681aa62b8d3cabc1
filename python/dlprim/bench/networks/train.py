"""Training and inference of whole networks: both sides begin with the same weights and batches.

Nothing is timed before the logits of the first weights and the loss of the first step agree.
Curves put the losses of both sides beside each other, with PyTorch on one thread as a third where
there are more: what that differs from PyTorch on all threads is what rounding alone does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dlprim.bench import peers
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.verification import WrongResultError, floats
from dlprim.bench.networks.sides import BATCHES, MODELS, Ours, Setting, Theirs, batch_of
from dlprim.bench.settings import Settings

_SAME = {"float32": 1e-5, "bfloat16": 2e-2}  # relative, before anything is timed
_QUICK = {"batch": 2, "size": 64, "hidden": 64}
_UNITS = {"resnet50": "images", "lstm": "characters", "gru": "characters", "mlp": "rows"}


def rows(settings: Settings) -> Iterator[Row]:
    """Of each model, mode and type; PyTorch is what they are verified against."""
    peers.load("torch")
    models = settings.kinds or (MODELS[:2] if settings.brief else MODELS[:3])
    for mode in settings.passes or ("training", "inference"):
        for dtype in settings.types("float32", "bfloat16"):
            for model in models:
                setting = setting_of(settings, model, dtype)
                make = partial(_case, setting, mode, settings.threads)
                yield Row(mode, f"{model} N={setting.batch}", dtype, make)


def setting_of(settings: Settings, model: str, dtype: str) -> Setting:
    """With its own batch, or that of the options; small in a quick run."""
    sizes: dict[str, Any] = dict(_QUICK) if settings.quick else {"batch": BATCHES[model]}
    if settings.batches:
        sizes["batch"] = settings.batches[0]
    return Setting(model, dtype, algorithm=settings.algorithm, **sizes)


def _case(setting: Setting, mode: str, threads: int) -> Case:
    torch = peers.torch(threads)
    ours = Ours(setting)
    theirs = Theirs(torch, setting, ours.model.state_dict())
    src, targets = batch_of(setting, 0)
    operations = ours.operations(src, mode == "training")
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "training": (partial(ours.train, src, targets), partial(theirs.train, src, targets)),
        "inference": (partial(ours.infer, src), partial(theirs.infer, src)),
    }
    call, other = calls[mode]

    def theirs_call() -> Callable[[], Any]:
        try:
            other()
        except RuntimeError as error:
            raise UnavailableError(str(error).splitlines()[0]) from error
        return other

    samples = f"{setting.samples} {_UNITS[setting.model]} a step"
    return Case(
        call, partial(verify, ours, theirs, src, targets), {"torch": theirs_call},
        operations=operations, peak_dtype=setting.dtype, notes={"samples": samples},
    )  # fmt: skip


def verify(ours: Ours, theirs: Theirs, src: np.ndarray, targets: np.ndarray) -> None:
    """Refuse sides whose logits of the first weights, or whose first losses, are apart.

    Raises
    ------
    WrongResultError
    """
    setting = ours.setting
    try:
        exact = floats(theirs.infer(src))
    except RuntimeError:  # PyTorch has no bfloat16 LSTM on this CPU
        exact = floats(Theirs(theirs.torch, Setting(**vars(setting) | {"dtype": "float32"}),
                              ours.model.state_dict()).infer(src))  # fmt: skip
    _require(setting, "inference", floats(ours.infer(src)), exact)
    try:
        loss = theirs.train(src, targets)
    except RuntimeError:
        return
    _require(setting, "training", np.array(ours.train(src, targets)), np.array(loss))


def _require(setting: Setting, mode: str, found: np.ndarray, exact: np.ndarray) -> None:
    error = float(np.abs(found - exact).max())
    limit = _SAME[setting.dtype] * float(np.abs(exact).max())
    if not error <= limit:
        times = error / limit
        raise WrongResultError(f"{setting.model} {mode}: wrong result, {times:.1f} times the bound")


def curves(setting: Setting, threads: int, steps: int) -> dict[str, Any]:
    """The losses of the first steps, by side."""
    torch = peers.torch(threads)
    ours = Ours(setting)
    sides: dict[str, Any] = {"dlprim": ours}
    state = ours.model.state_dict()
    sides["torch"] = Theirs(torch, setting, state)
    if threads > 1:
        sides["torch, 1 thread"] = Theirs(torch, setting, state)
    losses: dict[str, list[float]] = {name: [] for name in sides}
    for step in range(steps):
        for name, side in sides.items():
            torch.set_num_threads(1 if "," in name else threads)
            losses[name].append(float(side.step(step)))
    torch.set_num_threads(threads)
    return {"model": setting.model, "dtype": setting.dtype, "losses": losses}
