"""A call like one before it is not checked again; one that only looks alike is."""

import sys
import threading

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from dlprim import _core
from drawing import RNG

pytestmark = pytest.mark.any_level


def operands():
    x = RNG.standard_normal((2, 3, 6, 6)).astype(np.float32)
    w = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
    return x, w, RNG.standard_normal(4).astype(np.float32)


FUNCTIONS = {
    "conv1d": (lambda x, w, **how: dlprim.conv1d(x[:, :, 0], w[:, :, 0], **how), TypeError),
    "conv2d": (dlprim.conv2d, TypeError),
    "conv3d": (lambda x, w, **how: dlprim.conv3d(x[:, :, None], w[:, :, None], **how), TypeError),
    "conv_transpose2d": (
        lambda x, w, **how: dlprim.conv_transpose2d(x, w.swapaxes(0, 1).copy(), **how),
        TypeError,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("stride", [1.0, True, np.float32(1), "1", (1.0, 1)])
def test_an_argument_that_equals_one_of_a_known_call_is_still_refused(name, stride):
    x, w, _ = operands()
    function, error = FUNCTIONS[name]
    for _ in range(2):
        function(x, w, stride=1)
        with pytest.raises((error, ValueError)):
            function(x, w, stride=stride)


def test_arrays_that_are_of_a_known_shape_are_still_refused():
    x, w, bias = operands()
    dlprim.conv2d(x, w, bias)
    with pytest.raises(TypeError, match="masked"):
        dlprim.conv2d(np.ma.masked_array(x, x > 0), w, bias)
    with pytest.raises(TypeError, match="float64"):
        dlprim.conv2d(x.astype(np.float64), w, bias)
    with pytest.raises(TypeError, match=r"x has dtype >f4|byte order|expected"):
        dlprim.conv2d(x.astype(">f4"), w, bias)
    with pytest.raises(TypeError, match="uint16"):
        dlprim.conv2d(x.astype(np.uint16), w.astype(np.uint16))
    with pytest.raises(ValueError, match="x_scale is given"):
        dlprim.conv2d(x, w, bias, x_scale=0.5)
    bits = x.view(np.uint32)[..., :].astype(np.uint16)
    dlprim.conv2d(bits, w.view(np.uint32).astype(np.uint16), dtype="bfloat16")
    with pytest.raises(TypeError, match="uint16"):
        dlprim.conv2d(bits, w.view(np.uint32).astype(np.uint16))


def test_a_result_array_is_checked_in_every_call():
    x, w, bias = operands()
    y = dlprim.conv2d(x, w, bias)
    for _ in range(2):
        assert dlprim.conv2d(x, w, bias, out=y) is y
        with pytest.raises(ValueError, match="out has shape"):
            dlprim.conv2d(x, w, bias, out=y[:1].copy())
        with pytest.raises(ValueError, match="out shares memory with residual"):
            dlprim.conv2d(x, w, bias, residual=y, out=y)
        fixed = y.copy()
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            dlprim.conv2d(x, w, bias, out=fixed)


def test_operands_that_had_to_be_converted_are_converted_in_every_call():
    x, w, bias = operands()
    expected = dlprim.conv2d(x, w, bias)
    turned = np.asfortranarray(x)
    for _ in range(3):
        np.testing.assert_array_equal(dlprim.conv2d(turned, w, bias), expected)
        np.testing.assert_array_equal(dlprim.conv2d(x, w, bias), expected)
        half = dlprim.to_bfloat16(bias)
        near = dlprim.conv2d(x, w, half)
        np.testing.assert_allclose(near, expected, atol=0.05)


def test_a_known_call_follows_the_algorithm_of_the_process(monkeypatch):
    monkeypatch.setattr("dlprim.primitives.conv_algorithm._chosen", None)
    x = RNG.standard_normal((1, 16, 12, 12)).astype(np.float32)
    w = RNG.standard_normal((16, 16, 3, 3)).astype(np.float32)
    found = {}
    for _ in range(2):
        for name in ("direct", "winograd"):
            monkeypatch.setenv("DLPRIM_CONV_ALGORITHM", name)
            y = dlprim.conv2d(x, w, padding=1)
            np.testing.assert_array_equal(found.setdefault(name, y), y)
            named = dlprim.conv2d(x, w, padding=1, algorithm=name)
            np.testing.assert_array_equal(named, y)
    assert not np.array_equal(found["direct"], found["winograd"])


def test_keeps_the_latest_calls_and_what_they_led_to():
    calls = _core.KnownCalls(2, "DLPRIM_NO_SUCH_VARIABLE")
    array = np.zeros(3, np.float32)
    kept = object()
    before = sys.getrefcount(kept)
    for number in range(3):
        calls.keep((array, None), (number, ("a", 1.5)), kept, (array, None))
    assert sys.getrefcount(kept) == before + 2
    assert calls.find((array, None), (0, ("a", 1.5))) is None
    assert calls.find((array, None), (2, ("a", 1.5))) is kept
    assert calls.find((array, array), (2, ("a", 1.5))) is None
    assert calls.find((array, None), (2, ("a", -1.5))) is None
    assert calls.find((array.reshape(3, 1), None), (2, ("a", 1.5))) is None
    assert calls.find((array.view(np.int32), None), (2, ("a", 1.5))) is None
    calls.keep((array, None), ([],), kept, (array, None))  # a list has no form
    calls.keep((array, None), (7,), kept, (array.copy(), None))  # was converted
    assert calls.find((array, None), ([],)) is calls.find((array, None), (7,)) is None
    calls.clear()
    assert sys.getrefcount(kept) == before


def test_many_threads_make_and_find_calls():
    x, w, bias = operands()
    expected = {n: dlprim.conv2d(x[:, :, :n], w, bias) for n in range(3, 7)}
    wrong = []

    def work():
        for turn in range(60):
            n = 3 + turn % 4
            y = dlprim.conv2d(np.ascontiguousarray(x[:, :, :n]), w, bias)
            if not np.array_equal(y, expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_masked_arrays_are_not_imported_to_refuse_them(run_python: RunPython) -> None:
    run = run_python(
        "import sys, numpy as np, dlprim\n"
        "class Other(np.ndarray):\n"
        "    pass\n"
        "x = np.ones((2, 3), np.float32).view(Other)\n"
        "dlprim.linear(x, x), dlprim.relu(x)\n"
        "assert 'numpy.ma' not in sys.modules\n"
        "masked = np.ma.masked_array(x, x > 0)\n"
        "for f in (lambda: dlprim.linear(masked, x), lambda: dlprim.relu(masked)):\n"
        "    try:\n"
        "        f()\n"
        "    except TypeError as error:\n"
        "        assert 'masked array' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('taken')\n"
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_recurrent_calls_are_known_by_forms_and_others_refused(name: str) -> None:
    function, gates = getattr(dlprim, name), {"lstm": 4, "gru": 3, "rnn": 1}[name]
    x, h_0 = (RNG.standard_normal(it).astype(np.float32) for it in ((2, 3, 5), (1, 3, 4)))
    shapes = (gates * 4, 5), (gates * 4, 4), (gates * 4,), (gates * 4,)
    weights = [RNG.standard_normal(it).astype(np.float32) for it in shapes]
    alone = function(x, *weights[:2])
    expected = [function(x, *weights, h_0=h_0), function(2 * x, *weights, h_0=h_0)]
    for _ in range(2):
        for times, right in zip((1, 2), expected, strict=True):
            for one, other in zip(function(times * x, *weights, h_0=h_0), right, strict=True):
                np.testing.assert_array_equal(one, other)
        listed = function(x, *([it] for it in weights), h_0=h_0)
        turned = function(np.asfortranarray(x), *weights, h_0=h_0)
        first = function(x.swapaxes(0, 1).copy(), *weights, h_0=h_0, batch_first=True)
        for it in (listed.y, turned.y, first.y.swapaxes(0, 1)):
            np.testing.assert_array_equal(it, expected[0].y)
        np.testing.assert_array_equal(function(x, *weights[:2]).y, alone.y)
        with pytest.raises(ValueError, match="w_ih has shape"):
            function(x, weights[0][:, :2].copy(), *weights[1:], h_0=h_0)
        with pytest.raises(ValueError, match="h_0 has shape"):
            function(x, *weights, h_0=h_0[:, :2].copy())
        with pytest.raises(TypeError, match="x has dtype float64"):
            function(x.astype(np.float64), *weights, h_0=h_0)
        for wrong in ({"reverse": 0}, {"batch_first": None}, {"num_layers": True}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                function(x, *weights, h_0=h_0, **wrong)
