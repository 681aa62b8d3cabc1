"""`dlprim.nn.fit`: the loop that nobody has to write."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.arguments.scalars import flag, integer, real
from dlprim.nn import Module
from dlprim.optim import AdamW
from dlprim.optim.optimizer import Optimizer
from dlprim.optim.schedules import Schedule
from dlprim.train.fit.asking import require_module
from dlprim.train.fit.batches import (
    ArrayBatches,
    Batch,
    Batches,
    Division,
    batches_of,
    split,
)
from dlprim.train.fit.criterion import Criteria, Criterion
from dlprim.train.fit.history import History, is_quality, shown_as
from dlprim.train.fit.keeping import Keeper
from dlprim.train.fit.patience import Patience
from dlprim.train.interruption import Interruption, Stopped
from dlprim.train.loop import Loop, Passed, Update, called
from dlprim.train.modes import as_callers, in_test, in_training
from dlprim.train.progress import Progress

Callback = Callable[[dict[str, float], Module], Any]


class Fitting(Loop):
    """A model, what it is trained on and what it is judged by."""

    unit = "samples"

    def __init__(
        self, model: Module, data: tuple[Batches, Batches | None], update: Update, epochs: int
    ) -> None:
        super().__init__(model, update)
        self.batches, self.held_out = data
        self.epochs = epochs
        self.criterion: Any = update.loss
        self._judged: dict[str, float] = {}

    @property
    def steps(self) -> int:
        return self.batches.steps

    def parts(self) -> Sequence[tuple[Any, Any]]:
        return [(it.x, it) for it in self.batches.parts(self.step)]

    def count(self, targets: Batch) -> int:
        return len(targets.y)

    @property
    def averages(self) -> bool:
        return bool(self.criterion.averages)

    def mass_of(self, targets: Batch, count: int) -> float:
        return float(self.criterion.mass(targets))

    def _pass(self, src: Any, targets: Batch) -> Passed:
        try:
            return super()._pass(src, targets)
        except ValueError as error:
            if len(targets.y) == 1:
                error.add_note(self.batches.about_single)
            raise

    def judge(self) -> float:
        """The loss of what is held out; without that nothing can be wrong."""
        criterion, held_out = self.criterion, self.held_out
        self._judged = dict(criterion.accuracy)
        criterion.right = criterion.seen = 0
        if held_out is None:
            return 0.0
        loss, mass = 0.0, 0.0
        with in_test(self.model):
            for it in held_out.epoch():
                found = criterion(called(self.model, it.x), it)[0]
                loss += found * criterion.mass(it)
                mass += criterion.mass(it)
        self._judged["val_loss"] = loss / (mass or 1.0) if self.averages else loss
        self._judged |= {f"val_{name}": it for name, it in criterion.accuracy.items()}
        criterion.right = criterion.seen = 0
        return self._judged["val_loss"]

    def records(self) -> Iterator[tuple[Any, dict[str, float]]]:
        """As `run`, and beside each what a history has of it."""
        for it in self.run():
            record = {"epoch": it.epoch, "loss": it.train_loss, **self._judged}
            yield it, record | {"lr": self.optimizer.lr, "seconds": it.seconds.total}


def fit(
    model: Module,
    data: Any,
    *,
    loss: Criteria | None = None,
    optimizer: Optimizer | None = None,
    epochs: int = 10,
    batch_size: int = 32,
    validation: Any = None,
    schedule: Schedule | None = None,
    clip_norm: float | None = None,
    accumulate: int = 1,
    patience: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
) -> History:
    """Trains a model and returns what each epoch achieved.

    The same model, data and seed give the same bits, for any number of threads. Ctrl-C ends the
    training after the step that runs and returns: the model is as after that step, and
    ``history.interrupted`` is set. A second Ctrl-C is a KeyboardInterrupt at once.

    Parameters
    ----------
    model : Module
        Trained in place, in training mode. Layers that a model in training mode has in inference,
        as after ``model.norm.eval()``, stay so; a model in inference is trained with all of its
        layers. Afterwards each layer is in the mode that it was in.
    data : tuple, dict or iterable
        Arrays ``(x, y)`` or ``(x, y, weight)``, whose first axis are the samples, or a dict of
        them by these names. Or an iterable of such batches, which is gone through in each epoch;
        batch_size, shuffle and seed then mean nothing. Integers y are labels; float64 is converted
        to float32. x may be a tuple or a dict of arrays, which the model is called with.
    loss : callable, optional
        ``loss, diff = loss(model(x), y)``, as the losses of `dlprim.nn`, or a function that
        `dlprim.value_and_grad` takes, as for `Step`: ``loss(model(x), y)`` is a number. It is the
        mean over the samples, unless it is one of dlprim's that says more. By default
        `CrossEntropyLoss` of labels and `MSELoss` of anything else.
    optimizer : Optimizer, optional
        By default ``AdamW(model.parameters(), 1e-3)``.
    epochs, batch_size : int
    validation : float, or as data, optional
        A share of the samples in (0, 1), which the seed draws and nothing trains on, or other data.
        Every epoch ends with their loss and accuracy, ``val_loss`` and ``val_accuracy``.
    schedule : Schedule, optional
        Of `dlprim.optim.schedules`, for this optimiser; stepped after each update.
    clip_norm : float, optional
        The largest norm of all gradients together, as `dlprim.optim.clip_grad_norm`.
    accumulate : int
        Batches whose gradients one update takes together, as if they were one batch: each counts
        by what its mean is over, samples, their weights or labels that are not ignored; a
        reduction="sum" is added up.
    patience : int, optional
        Ends the training after so many epochs in which val_loss, or loss without validation, was
        not below all before. The model is then as after its best epoch.
    shuffle, seed : bool, int
        Whether every epoch has another order, and what decides it.
    callbacks : iterable of callable
        ``callback(record, model)`` is called after each epoch, with a dict of its numbers, which
        it may add to, and a checkpoint keeps as a str what JSON has no form for; True ends the
        training. The model is in the mode that it was given in.
    checkpoint : str or Path, optional
        A file that is replaced after each epoch, and on Ctrl-C, with all that a run goes on from.
        Where it cannot be written a RuntimeWarning says so, and the training goes on.
    resume : bool
        Goes on from the checkpoint, if there is one, to the bits of a run that was never stopped.
        Model, data and arguments are to be those of that run, epochs may be more. Others are
        refused, but for what cannot be compared: functions, and batches from an iterable.
    progress : bool
        Prints a line for each epoch; on a terminal and in a notebook with a bar of tqdm, where that
        is installed.

    Returns
    -------
    History
        ``history["loss"]``, ``history["val_accuracy"]`` and so on; ``history.plot()`` draws them.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range, or data have another form.
    ArithmeticError
        The loss is no longer finite; the sentence says in which layer that began.
    dlprim.train.CheckpointError
        The checkpoint is damaged, of another run, or there though resume is False.
    """
    division = Division(
        integer("batch_size", batch_size, 1),
        integer("accumulate", accumulate, 1),
        flag("shuffle", shuffle),
        integer("seed", seed, 0),
    )
    both = _divided(data, validation, division)
    criterion = Criterion(loss, both[0].has_labels)
    given = _optimizer_of(model, optimizer)
    limit = math.inf if clip_norm is None else real("clip_norm", clip_norm, 0)
    loop = Fitting(
        model, both, Update(given, criterion, schedule, limit), integer("epochs", epochs, 1)
    )
    ends = Patience(None if patience is None else integer("patience", patience, 1))
    history = History()
    keep: Callable[[], Any] = int  # which does nothing
    if checkpoint is not None:
        settings = {**asdict(division), "clip_norm": clip_norm and limit, "patience": ends.epochs}
        keeper = Keeper(Path(checkpoint), loop, settings)
        keeper.begin(history, ends, flag("resume", resume))
        keep = partial(keeper.save, history, ends)
    if history.records and ends.is_over(history.records[-1]):
        loop.epochs = history.epochs
    _run(loop, history, ends, list(callbacks), keep, progress)
    return history


def _run(
    loop: Fitting,
    history: History,
    ends: Patience,
    callbacks: list[Callback],
    keep: Callable[[], Any],
    shows: bool,
) -> None:
    model, was_training = loop.model, loop.model.training
    interruption = Interruption(signal.SIGINT)

    def after_step(loss: float) -> None:
        if progress is not None:
            progress.after_step(loss)
        if interruption.wanted:
            raise Stopped

    def after_epoch(record: dict[str, float]) -> bool:
        """Whether somebody wants the training to end."""
        with as_callers(model, was_training):
            answers = [callback(record, model) for callback in callbacks]
        history.records.append(record)
        ends.note(record, model)
        keep()
        wishes = [isinstance(it, bool | np.bool_) and it for it in answers]
        return any(wishes) or ends.is_over(record)

    loop.after_step = after_step
    with in_training(model), Progress(loop) if shows else nullcontext() as progress:
        try:
            with interruption.listening():
                for done, record in loop.records():
                    is_over = after_epoch(record)
                    if progress is not None:
                        shown = [shown_as(*it) for it in record.items() if is_quality(it[0])]
                        progress.after_epoch(done, "  ".join(shown))
                    if is_over:
                        break
                    if interruption.wanted:
                        raise Stopped
        except Stopped:
            history.interrupted = True
            keep()
            if progress is not None:
                print(f"interrupted: the model is as after step {loop.step}.", flush=True)
            return
        history.best = ends.restore(model)


def _optimizer_of(model: Module, given: Optimizer | None) -> Optimizer:
    """The usual one, or the given one, which updates parameters of this model."""
    require_module(model)
    if given is None:
        return AdamW(model.parameters())
    if not isinstance(given, Optimizer):
        raise TypeError(
            f"optimizer is of type {type(given).__name__}, expected one of dlprim.optim"
        )
    own = set(map(id, model.parameters()))
    if not any(id(it) in own for group in given.param_groups for it in group["params"]):
        raise ValueError(
            "optimizer has no parameter of the model, expected one that was made with "
            "model.parameters()"
        )
    return given


def _divided(data: Any, validation: Any, division: Division) -> tuple[Batches, Batches | None]:
    training = batches_of("data", data, division)
    if validation is None:
        return training, None
    if not isinstance(validation, Real):
        return training, batches_of("validation", validation, Division(256, shuffle=False))
    share = real("validation", validation, 0)
    if share >= 1 or share == 0:
        raise ValueError(f"validation is {validation}, expected a share in (0, 1), or data")
    if not isinstance(training, ArrayBatches):
        raise ValueError(
            f"validation is {validation}, a share of the samples, but data gives batches; expected "
            "other batches, or arrays"
        )
    rest, held_out = split(training.whole, share, division.seed)
    return (
        ArrayBatches(rest, division),
        ArrayBatches(held_out, Division(256, shuffle=False)),
    )
