"""A training step of a model as one network, in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dlprim.arguments.scalars import integer, real
from dlprim.arguments.traced import RUNNING, lifted
from dlprim.functions.loss import LossAndGradient
from dlprim.nn.attributes import State
from dlprim.nn.calls import require_array, with_arrays
from dlprim.nn.losses import Loss
from dlprim.nn.module import Module
from dlprim.primitives.conv_algorithm import conv_algorithm

if TYPE_CHECKING:
    from dlprim.tracing.steps import Exchange, Optimizer


# How many combinations of modes and loss settings are kept.
_MOST_TRACED = 4


class _Traced(NamedTuple):
    """What the step traces of a form of the model, and of the loss in some settings."""

    form: Any
    settings: State
    function: Callable[..., Any]

    def is_as_before(self, form: Any) -> bool:
        return self.form is form and self.settings.is_as_before()


class Step:
    """Forward, loss, gradients, clipping and update: ``loss = step(x, labels)``.

    It does what ``loss, dy = criterion(model(x), labels)``, ``model.backward(dy)`` and
    ``optimizer.step()`` do one after the other, and may take turns with them: both change the same
    arrays. Gradients are nowhere kept, so `Parameter.gradient` stays as it is. Settings of the
    optimiser and of the loss, attributes, and the mode of each module are those of each call.

    Parameters
    ----------
    model : Module
    loss : callable
        Of what the model gives and the target: a loss of `dlprim.nn`, or a function written as for
        `dlprim.compile`, which returns a scalar. Attributes of it may be assigned at any time.
    optimizer : SGD, Adam, AdamW, LAMB or RMSprop of `dlprim.optim`
        Of parameters of the model, in one group or in several; what it does not have stays. Those
        that the loss does not depend on have the gradient 0, as from `Module.backward`.
    clip_norm : float, optional
        Gradients are scaled so that their norm, of all together, is at most that, as by
        `dlprim.optim.clip_grad_norm`.
    accumulate : int
        Of so many calls gradients are added up, and parameters updated in the last, by the sum;
        `dlprim.nn.fit` takes the mean, as a loss divided by accumulate gives it here.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range.

    Attributes
    ----------
    norm : float or None
        Of all gradients of the latest update, in front of clipping; None without clipping.
    model, optimizer, clip_norm
        As given.

    Notes
    -----
    A call that raises leaves parameters, moments and statistics as they were: arguments are checked
    first, and nothing that may refuse what it is given, such as a label, runs behind the first
    change.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> step = nn.Step(model, nn.CrossEntropyLoss(), optim.AdamW(model.parameters()), clip_norm=1.0)
    >>> loss = step(np.ones((2, 4), np.float32), np.array([0, 2]))
    """

    def __init__(
        self,
        model: Module,
        loss: Callable[..., Any],
        optimizer: Optimizer,
        *,
        clip_norm: float | None = None,
        accumulate: int = 1,
    ) -> None:
        if not isinstance(model, Module):
            raise TypeError(f"model is of type {type(model).__name__}, expected a dlprim.nn.Module")
        if not callable(loss):
            raise TypeError(f"loss is of type {type(loss).__name__}, expected a function")
        if not hasattr(optimizer, "update"):
            raise TypeError(
                f"optimizer is of type {type(optimizer).__name__}, expected one of dlprim.optim"
            )
        limit = None if clip_norm is None else real("clip_norm", clip_norm, 0)
        settings = limit, integer("accumulate", accumulate, 1), False
        self.model, self.optimizer, self.clip_norm = model, optimizer, limit
        self._loss = loss
        from dlprim.tracing.compiled import KEPT_SHAPES  # which takes long
        from dlprim.tracing.steps import TrainingStep

        how = model.context.dtype_name, KEPT_SHAPES, None
        self._traced: list[_Traced] = []  # the latest first
        self._step = TrainingStep(self._of_form, optimizer, settings, how, "float32")

    @property
    def norm(self) -> float | None:
        return self._step.norm

    def exchange_by(self, exchange: Exchange) -> None:
        """From now on that has a part in every update; `dlprim.distributed.DataParallel` is one."""
        self._step.exchange = exchange

    def __call__(self, /, *args: Any) -> Any:
        """The loss, of parameters as they were in front of the step.

        Parameters
        ----------
        *args
            What the model takes, and behind it the target.

        Returns
        -------
        numpy.float32

        Raises
        ------
        TypeError, ValueError, IndexError
            As the model and the loss; nothing was changed.
        """
        args = self._as_arrays(args)
        form = self._looked_at()
        with conv_algorithm(self.model.context.algorithm):
            found = self._step(*args)
        if form.is_traced:
            form.settle(self.model)
        return found

    def explain(self, /, *args: Any) -> str:
        """What runs in the next call with these arguments, step by step."""
        args = self._as_arrays(args)
        self._looked_at()
        return self._step.explain(*args)

    def _as_arrays(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, checked, with arrays for lists of integers that are data."""
        if len(args) < 2:
            raise TypeError(
                f"step is given {len(args)} arguments, expected what the model takes and behind it "
                "the target, as in step(x, labels)"
            )
        require_array(self.model, args[:-1])
        if self.model.listed:
            args = (*with_arrays(self.model, args[:-1], {})[0], args[-1])
        return args

    def _looked_at(self) -> Any:
        """The model as it is now, which the step traces."""
        form, known = self.model.front.form(None), self._traced
        if known and known[0].is_as_before(form):
            return form
        settings = State(self._loss)
        same = (it for it in known if it.form is form and it.settings.is_like(settings))
        found = next(same, None)
        function = self._function_of(form) if found is None else found.function
        now = _Traced(form, settings, function)
        self._traced = [now, *(it for it in known if it is not found)][:_MOST_TRACED]
        self._step.function = now.function
        self._step.keep([it.function for it in self._traced])
        return form

    def _function_of(self, form: Any) -> Callable[..., Any]:
        forward, loss = form.forward, self._loss

        def function(*args: Any) -> Any:
            lifted(RUNNING.tracer, self.model.parameters())  # also those not met get a step
            *inputs, target = args
            return _scalar(loss, forward(*inputs), target)

        return function

    def _of_form(self, *args: Any) -> Any:
        raise AssertionError("a form comes first")


def _scalar(loss: Callable[..., Any], y: Any, target: Any) -> Any:
    if isinstance(loss, Loss):
        return loss(y, target, gradient=False).loss
    found = loss(y, target)
    return found.loss if isinstance(found, LossAndGradient) else found
