"""A classifier and a regressor for scikit-learn, on any model of `dlprim.nn`.

Pipelines, grid searches and cross-validation take them as they take scikit-learn's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.scalars import integer, shown
from dlprim.functions.rows.softmax import softmax
from dlprim.nn import Module
from dlprim.nn.initial import drawn_from
from dlprim.optim import AdamW
from dlprim.train.fit.asking import predict
from dlprim.train.fit.training import fit
from dlprim.train.models import mlp

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError(
        "dlprim.train.Classifier and Regressor need scikit-learn 1.6 or newer: "
        'pip install "dlprim[train]"'
    ) from error

Factory = Callable[[int, int], Module]


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both do: a model is made of the data's extents, trained by `fit`, asked by `predict`."""

    def __init__(
        self,
        model: Module | Factory | None = None,
        *,
        hidden: int | tuple[int, ...] = (100,),
        epochs: int = 100,
        batch_size: int = 32,
        lr: float = 3e-3,
        weight_decay: float = 1e-4,
        validation: float | None = None,
        patience: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.validation = validation
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, x: FloatArray, y: Array, outputs: int, epochs: int, is_new: bool) -> Self:
        """A new model, or that which is there."""
        if is_new:
            self._seed = int(check_random_state(self.random_state).randint(2**31))
            self._runs, self._moments = 0, None
            self.__dict__.pop("model_", None)  # lest it stays where making another fails
            self.model_ = self._made(x.shape[1], outputs)
        optimizer = AdamW(self.model_.parameters(), self.lr, weight_decay=self.weight_decay)
        if self._moments is not None:
            optimizer.load_state_dict(self._moments)
        self._require_columns(x[:1], outputs)
        self.history_ = fit(
            self.model_,
            (x, y),
            optimizer=optimizer,
            epochs=epochs,
            batch_size=self.batch_size,
            validation=self.validation,
            patience=self.patience,
            seed=self._seed + self._runs,
            progress=self.verbose,
        )
        if self.history_.interrupted:
            raise KeyboardInterrupt
        self._moments, self._runs = optimizer.state_dict(), self._runs + 1
        self.n_iter_ = self.history_.epochs
        return self

    def _made(self, inputs: int, outputs: int) -> Module:
        generator = np.random.default_rng(self._seed)
        if self.model is None:
            inside = self.hidden if isinstance(self.hidden, Iterable) else (self.hidden,)
            widths = [integer("hidden", it, 1) for it in inside]
            return mlp((inputs, *widths, outputs), generator)
        if isinstance(self.model, Module):
            return copy.deepcopy(self.model)
        with drawn_from(generator):
            return self.model(inputs, outputs)

    def _require_columns(self, x: FloatArray, outputs: int) -> None:
        """Of a model of one's own that gives something else for a sample, sooner than its loss."""
        found = predict(self.model_, x)
        if getattr(found, "shape", None) != (1, outputs):
            given = shown(found) if hasattr(found, "shape") else f"a {type(found).__name__}"
            raise ValueError(
                f"model gives {given} for a sample, expected an array of shape (1, {outputs}): a "
                "column for each class, or each result"
            )

    def _asked(self, X: Any) -> FloatArray:
        check_is_fitted(self, "model_")
        x = validate_data(self, X, dtype=np.float32, reset=False)
        found: FloatArray = predict(self.model_, x).astype(np.float32, copy=False)
        return found

    def _is_new(self) -> bool:
        return not hasattr(self, "model_")


_ARGUMENTS = """

    Floats are converted to float32. Scale the columns of X first, as with
    ``make_pipeline(StandardScaler(), ...)``: networks learn slowly from others.

    Parameters
    ----------
    model : callable or Module, optional
        ``model(inputs, outputs)`` makes a new one, of so many columns and results; of a Module a
        copy is trained. By default linear layers with relu between them.
    hidden : int, or tuple of int
        Neurons of the layer, or layers, inside the default model.
    epochs, batch_size : int
    lr, weight_decay : float
        Of `dlprim.optim.AdamW`.
    validation : float, optional
        A share of the samples that is held out; `history_` has how it is met.
    patience : int, optional
        Ends the training after so many epochs without a better one, and takes the best.
    random_state : int, RandomState or None
        Decides the first weights and the order of the samples.
    verbose : bool
        Prints a line for each epoch.

    Attributes
    ----------
    model_ : Module
    history_ : dlprim.nn.History
    n_iter_ : int
        Epochs of the latest call.
    n_features_in_ : int
"""


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A network that tells classes apart, as a classifier of scikit-learn.
{_ARGUMENTS}
    classes_ : ndarray
        In the order of the columns of `predict_proba`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a new model.

        Parameters
        ----------
        X : array (samples, columns)
        y : array (samples,)
            Classes: integers, strings or anything else that can be sorted.

        Returns
        -------
        Classifier

        Raises
        ------
        ValueError
            X or y have another form, or hold NaN.
        """
        return self._continued(X, y, True, None, self.epochs)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Trains for one epoch, and goes on where there is a model already.

        Parameters
        ----------
        X, y
            As of `fit`.
        classes : array, optional
            All there will be; needed by the first call unless y has them all.

        Returns
        -------
        Classifier

        Raises
        ------
        ValueError
            As `fit`; or y has a class that is not among them.
        """
        return self._continued(X, y, self._is_new(), classes, 1)

    def _continued(self, X: Any, y: Any, is_new: bool, classes: Any, epochs: int) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float32, reset=is_new)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if is_new:
            self.classes_ = np.unique(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y has the class {unknown[0]!r}, expected one of {self.classes_}")
        labels = np.searchsorted(self.classes_, y)
        return self._train(X, labels, len(self.classes_), epochs, is_new)

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class.

        Parameters
        ----------
        X : array (samples, columns)

        Returns
        -------
        ndarray of float32, (samples, classes)

        Raises
        ------
        ValueError
            X has another form.
        """
        return np.asarray(softmax(self._asked(X)))

    def predict(self, X: Any) -> Array:
        """The likeliest class of each sample.

        Parameters
        ----------
        X : array (samples, columns)

        Returns
        -------
        ndarray, (samples,)

        Raises
        ------
        ValueError
            X has another form.
        """
        likeliest = self._asked(X).argmax(axis=1)
        found: Array = self.classes_[likeliest]
        return found


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A network that predicts numbers, as a regressor of scikit-learn.
{_ARGUMENTS}    """

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a new model to small squares of differences.

        Parameters
        ----------
        X : array (samples, columns)
        y : array (samples,) or (samples, results)

        Returns
        -------
        Regressor

        Raises
        ------
        ValueError
            X or y have another form, or hold NaN.
        """
        return self._continued(X, y, True, self.epochs)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Trains for one epoch, and goes on where there is a model already.

        Parameters
        ----------
        X, y
            As of `fit`.

        Returns
        -------
        Regressor

        Raises
        ------
        ValueError
            As `fit`.
        """
        return self._continued(X, y, self._is_new(), 1)

    def _continued(self, X: Any, y: Any, is_new: bool, epochs: int) -> Self:
        how = {"multi_output": True, "y_numeric": True, "reset": is_new}
        X, y = validate_data(self, X, y, dtype=np.float32, **how)
        self._is_flat = y.ndim == 1
        targets = y.astype(np.float32).reshape(len(y), -1)
        return self._train(X, targets, targets.shape[1], epochs, is_new)

    def predict(self, X: Any) -> Array:
        """What the model gives for each sample.

        Parameters
        ----------
        X : array (samples, columns)

        Returns
        -------
        ndarray of float32, (samples,); of several results (samples, results), in float64, which
            scikit-learn asks of them

        Raises
        ------
        ValueError
            X has another form.
        """
        found = self._asked(X)
        return found.reshape(-1) if self._is_flat else found.astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
