"""The estimators are ones of scikit-learn, by its own checks, and learn what they are shown."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conftest import RunPython
from dlprim import nn

pytest.importorskip("sklearn", minversion="1.6", reason="the estimators are made for it")

from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dlprim.train import Classifier, Regressor

pytestmark = pytest.mark.any_level


@parametrize_with_checks([Classifier(), Regressor()])
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_importing_dlprim_does_not_import_scikit_learn(run_python: RunPython) -> None:
    run = run_python(
        "import sys, dlprim\n"
        "assert dlprim.nn.fit and dlprim.train.load\n"
        "assert 'sklearn' not in sys.modules and 'matplotlib' not in sys.modules\n"
        "assert dlprim.train.Classifier and 'sklearn' in sys.modules\n"
    )
    assert run.returncode == 0, run.stderr


def test_digits_with_names_for_classes() -> None:
    digits = load_digits()
    names = np.array([f"a {it}" for it in range(10)])
    x, y = digits.data / 8 - 1, names[digits.target]
    found = Classifier(epochs=10, random_state=0).fit(x[:1400], y[:1400])
    assert found.score(x[1400:], y[1400:]) > 0.9
    assert found.history_["accuracy"][-1] > 0.98
    again = pickle.loads(pickle.dumps(found))
    assert again.predict(x[:5]).tolist() == found.predict(x[:5]).tolist() == y[:5].tolist()
    assert again.partial_fit(x[:50], y[:50]).n_iter_ == 1
    np.testing.assert_allclose(found.predict_proba(x[:9]).sum(axis=1), 1, 1e-5)


def test_models_of_ones_own_and_grid_search() -> None:
    def wide(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 32, activation="tanh"), nn.Linear(32, outputs))

    nn.seed(5)
    x, y = make_moons(200, noise=0.1, random_state=0)
    template = wide(2, 2)
    before = template.state_dict()
    for model in (wide, template, None):
        estimator = Classifier(model, epochs=30, lr=0.02, random_state=0)
        first, second = (clone(estimator).fit(x, y).predict_proba(x) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert (first.argmax(axis=1) == y).mean() > 0.95
    for name, it in template.state_dict().items():
        np.testing.assert_array_equal(it, before[name])
    pipeline = make_pipeline(StandardScaler(), Classifier(epochs=20, random_state=0))
    grid = {"classifier__lr": [1e-5, 0.02], "classifier__hidden": [(8,), (16, 8)]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    assert search.best_params_["classifier__lr"] == 0.02
    assert search.best_score_ > 0.85


def test_numbers_and_several_of_them() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (300, 2))
    one = np.sin(3 * x[:, 0])
    several = np.stack([one, x[:, 1] ** 2], axis=1)
    for y in (one, several):
        found = Regressor(random_state=0, validation=0.1, patience=50).fit(x, y)
        assert found.predict(x).shape == y.shape
        assert found.score(x, y) > 0.95
        assert found.history_.best is not None


def test_learning_in_parts() -> None:
    x, y = make_moons(300, noise=0.1, random_state=0)
    found = Classifier(lr=0.02, random_state=0)
    found.partial_fit(x[:3], y[:3], classes=[0, 1])
    for _ in range(40):
        found.partial_fit(x, y)
    assert found.score(x, y) > 0.95
    with pytest.raises(ValueError, match="y has the class"):
        found.partial_fit(x[:3], [0, 1, 7])


class Interrupting(nn.Module):
    """Ctrl-C in the first step of a training."""

    def forward(self, x: Any) -> Any:
        if self.training:
            os.kill(os.getpid(), signal.SIGINT)
        return x


def test_ctrl_c_ends_more_than_a_fit() -> None:
    """A search goes on to no other settings."""
    x, y = make_moons(60, random_state=0)

    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(Interrupting(), nn.Linear(inputs, outputs))

    for estimator in (Classifier(network, epochs=3), Regressor(network, epochs=3)):
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(x, y)


def test_models_that_do_not_fit_are_refused_before_they_are_trained() -> None:
    x, y = make_moons(60, random_state=0)
    for estimator, said in (
        (Classifier(nn.Linear(2, 5)), r"model gives an array of shape \(1, 5\) for a sample"),
        (Classifier(nn.Linear(2, 1)), r"expected an array of shape \(1, 2\)"),
        (Regressor(nn.Linear(2, 2)), r"expected an array of shape \(1, 1\)"),
        (Classifier(hidden=0), "hidden is 0, expected"),
        (Classifier(hidden=6.5), "hidden is .*6.5"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            estimator.fit(x, y)
    assert Classifier(hidden=8, epochs=1).fit(x, y).model_[0].weight.value.shape[0] == 8


def test_a_fit_that_fails_leaves_no_model_of_the_fit_before() -> None:
    x, y = make_moons(60, random_state=0)
    for estimator in (Classifier(epochs=1), Regressor(epochs=1)):
        estimator.fit(x, y).set_params(hidden=0)
        with pytest.raises(ValueError, match="hidden is 0, expected"):
            estimator.fit(x, y)
        with pytest.raises(NotFittedError):
            estimator.predict(x)
