"""Files of `dlprim.nn.save` that earlier versions wrote."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from dlprim import nn

pytestmark = pytest.mark.any_level

# Of 0.2, compressed: Pack, a Sliced of Conv2d(2, 2, 1), BatchNorm2d and MaxPool2d(2), Dropout,
# Flatten and Linear(8, 2), in inference, in a context of the layout NHWC.
OF_0_2 = """
eNqtVc9rJEUUHhQFPXkSDy6E9rob6ndVe3CCERHUJbAHhWwIr6peZZv0dM/29GQTlkBu3hTx5G3/gv0TNh4XvHvy
4ME/Q8TXPZ3NNIKaicVMpuvr7ve+973vVWI5b4rZdlVtzeqI5RZ/+7u3Jv16mvVI9uHW0+y4qCJdZA/w8RKrtoAy
u7uV1U8qAttmibRpGyiqojoiJEG56CBojpYzenzRxyjhDJvVJWFNgd31/n42h3BM0a6T7K2Am4U/Pz+4u7WfjQI9
KIuA8f9jGurqZJRglwCxQYJd+isI/Xz4Pcam6pXmtFlQxojDZg4xriIx2sWihLaoq+HmUVMv54th4wtYXFOA0BYn
V89mDZbLjmUqmkV7xWpQrKqb2aioj6ENj+4TepvKRvmrZVkShiuueI9p2s3q7q3lrCttmw9k5nVdjsh8Cad7hG1C
5ZWoYl3UgcuarpT64JygYgZHfaevyMSmno/IfEJAvWxvTmXeF9lVvUCMaykS9XOU4lMCWqw2tX8Ko2hfFBVCs1kX
3Zo//8FbnZ69guedhjQhLZ52Futqq6GVost+/7OvdrtfWLZ1dtCna+Bslasbqu0nWBw9avt9bM/mXaPW3188gh7b
JzL0IbvzLsq8hICvRoOa10XIci7RiuiMZsaD5BodBiGDlkbHPGkU4HIdEyJXufIpF86zxESwWtLNmA2FnGwPZf8b
p3UqRo24KM6tNxBkSM6glRx4ypnMtfHKa4EE6cQhlzwEh9GmgJox7pXhkjkDPZduQv+7QutsuHAjOmgTU8kmC9EA
d0bkTnivUoxMSCYx2JDbIIUR4FHakOgxoyUEo1zQPL+ms4E0PBcjMswwcEmB9pphAGW5TiBScI4njNSvaJSIMVnh
ICkNCki4kHiuEpNcyGsyzbLq7Hw4Q6huSEpoMyIVdYhJMyWjNRp0lMwzaZKn6kPQLhmZq8AlR+eM8UlFaZEDRiPp
QGGa/53UCQ3gzThJMTa0NYxkiZZRI7gCpbgXQkWhyEbGpYSO2uQ8Ec0ZIaBMLpmOyLhUUaU1oarl7NB3xzsuDukQ
CMf9YbTGrahao0bMRsTc2N0mxOilsZB81E6Sk1zKvY82aho8zyOz0hHouOf0aJSOm1wLEx3XjkvbE0vhJtPv1vko
Nba3ClokB5GMHCLSlBO1gLll3luMQCpGLyIDGnWlvfRRGBo+b3JHqiaLV3w2MLfmY3NzRg6WwqOTKCwlxKSsNCDJ
N7liigVgOUhLrsqVU0JEnrgLAlVuSTqR9cepP2v7/0hasPPJ5OIj+r6YTHamk83W5SrGpusZ5b2Ybv7+DuV/drn5
+5Pp7fhPdlYxNluvT269htrf+WnVx06LTpO+Ly+G+qbDvenqXt/z6bV+F5e/Pn/324d//Pny+eTlz2/cu3P62/c/
7N35+s3X3vv9g19+/Ob9h38Bb7kBsg==
"""


def test_a_model_of_0_2_with_packing_and_slices_loads(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(zlib.decompress(base64.b64decode(OF_0_2)))
    model = nn.load(path)
    assert not any(it.training for it in model.modules())
    state = model.state_dict()
    parts = ("weight", "bias")
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert list(state) == [
        *[f"conv.{it}" for it in parts],
        *[f"norm.{it}" for it in (*parts, *statistics)],
        *[f"fc.{it}" for it in parts],
    ]
    np.testing.assert_array_equal(state["norm.running_var"], [2, 0.5])
    assert state["norm.num_batches_tracked"] == 3
    x = np.arange(96, dtype=np.float32).reshape(3, 2, 4, 4) % 7 - 3
    conv, fc, norm = ([state[f"{name}.{it}"] for it in parts] for name in ("conv", "fc", "norm"))
    y = np.einsum("nchw,kc->nkhw", x, conv[0][:, :, 0, 0]) + conv[1].reshape(2, 1, 1)
    scale = norm[0] / np.sqrt(state["norm.running_var"] + 1e-5)
    shift = norm[1] - state["norm.running_mean"] * scale
    y = np.maximum(y, 0) * scale.reshape(2, 1, 1) + shift.reshape(2, 1, 1)
    y = y.reshape(3, 2, 2, 2, 2, 2).max((3, 5)).reshape(3, 8) @ fc[0].T + fc[1]
    assert np.ptp(y, axis=0).min() > 1e-2
    np.testing.assert_allclose(model(x), y, rtol=1e-5, atol=1e-5)
    model.train()
    assert model.backward(np.ones_like(model(x))).shape == x.shape
    nn.save(model, path)
    again = nn.load(path)
    np.testing.assert_allclose(again.eval()(x), model.eval()(x), rtol=1e-6)
    assert repr(again) == repr(model)
