"""What formulas call, in Triton's words: one text for each function, of values that have names.

Errors are those of the GPU's own instructions for `exp`, `log`, `sin` and `erf`, and a few units in
the last place more where others are made of them.
"""

from __future__ import annotations

_NAN = ", propagate_nan=tl.PropagateNan.ALL)"
_CLIPPED = f"tl.minimum(tl.maximum({{0}}, 0.0{_NAN}, 6.0{_NAN}"
_TRUNC = "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))"
_SIGMOID = "1 / (1 + tl.exp(-{0}))"
_TURNS = "3.141592653589793 * ({0} - 2 * tl.floor({0} * 0.5))"
_CBRT = (
    "tl.where({0} == 0, {0}, tl.where({0} < 0, -1.0, 1.0) * tl.exp2(tl.log2(tl.abs({0})) / 3.0))"
)
# exp(x) - 1 near 0: the difference of what is nearly equal has few digits left.
_SERIES = (
    "{0} * (1 + {0} * (0.5 + {0} * (0.16666666666666666 + {0} * (0.041666666666666664 + {0} * "
    "(0.008333333333333333 + {0} * 0.001388888888888889)))))"
)
_TWICE = _SERIES.replace("{0}", "(2 * {0})")
_TANH = (
    f"tl.where(tl.abs({{0}}) < 0.125, {_TWICE} / ({_TWICE} + 2), 1 - 2 / (1 + tl.exp(2 * {{0}})))"
)
# What 1 + x leaves out of x is put back by a quotient.
_LOG1P = (
    "tl.where(1 + {0} == 1, {0}, tl.log(1 + {0}) * ({0} / tl.where(1 + {0} == 1, 1, "
    "tl.where(tl.abs({0}) < 1e30, (1 + {0}) - 1, {0}))))"
)
_POW = (
    "tl.where({1} == 0, 1.0, tl.where({0} == 0, tl.where({1} > 0, 0.0, float('inf')), "
    "tl.exp2({1} * tl.log2(tl.abs({0}))) * tl.where({0} > 0, 1.0, tl.where(tl.floor({1}) != {1}, "
    "float('nan'), tl.where(tl.floor({1} * 0.5) * 2 == {1}, 1.0, -1.0)))))"
)
_RINT = (
    "tl.where(tl.abs({0}) < 8388608.0, tl.where({0} < 0, -1.0, 1.0) * "
    "((tl.abs({0}) + 8388608.0) - 8388608.0), {0})"
)

# Of real numbers.
REAL = {
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "exp10": "tl.exp2({0} * 3.321928094887362)",
    "expm1": f"tl.where(tl.abs({{0}}) < 0.25, {_SERIES}, tl.exp({{0}}) - 1)",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log10": "tl.log2({0}) * 0.3010299956639812",
    "log1p": _LOG1P,
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1 / tl.sqrt({0})",
    "cbrt": _CBRT,
    "rcbrt": f"1 / ({_CBRT})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tan": "tl.sin({0}) / tl.cos({0})",
    "sinpi": f"tl.sin({_TURNS})",
    "cospi": f"tl.cos({_TURNS})",
    "sinh": "(tl.exp({0}) - tl.exp(-{0})) * 0.5",
    "cosh": "(tl.exp({0}) + tl.exp(-{0})) * 0.5",
    "tanh": _TANH,
    "erf": "tl.erf({0})",
    "erfc": "1 - tl.erf({0})",
    "normcdf": "0.5 * (1 + tl.erf({0} * 0.7071067811865476))",
    "sigmoid": _SIGMOID,
    "softplus": "tl.maximum({0}, 0.0) + " + _LOG1P.replace("{0}", "tl.exp(-tl.abs({0}))"),
    "swish": f"{{0}} * ({_SIGMOID})",
    "silu": f"{{0}} * ({_SIGMOID})",
    "mish": "{0} * (1 - 2 / ((1 + tl.exp({0})) * (1 + tl.exp({0})) + 1))",
    "gelu": "0.5 * {0} * (1 + tl.erf({0} * 0.7071067811865476))",
    "gelu_tanh": "{0} / (1 + tl.exp(-1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0})))",
    "hardsigmoid": _CLIPPED.replace("{0}", "{0} + 3") + " / 6",
    "hardswish": "{0} * " + _CLIPPED.replace("{0}", "{0} + 3") + " / 6",
    "relu": "tl.where({0} < 0, 0.0, {0})",
    "relu6": _CLIPPED,
    "fabs": "tl.abs({0})",
    "abs": "tl.abs({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, tl.where({0} == 0, 0.0, {0})))",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": _TRUNC,
    "rint": _RINT,
    "round": _RINT,
    "pow": _POW,
    "hypot": "tl.sqrt({0} * {0} + {1} * {1})",
    "fdim": f"tl.maximum({{0}} - {{1}}, 0.0{_NAN}",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
    "fdivide": "{0} / {1}",
    "fma": "tl.fma({0}, {1}, {2})",
}
# Of numbers of any kind; a real one where an operand is.
_PROMOTING = {
    "negative": "-{0}",
    "+": "{0} + {1}",
    "-": "{0} - {1}",
    "*": "{0} * {1}",
    "/": "{0} / {1}",
    "%": "{0} - {1} * tl.floor({0} / {1})",
    "max": "tl.where({0} < {1}, {1}, {0})",
    "min": "tl.where({1} < {0}, {1}, {0})",
}
# Integers are divided downwards: the rest is no less than 0 for every dividend.
_REST = "((({0}) % ({1})) + ({1})) % ({1})"
_INTEGER = {**_PROMOTING, "/": f"(({{0}}) - ({_REST})) // ({{1}})", "%": _REST}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LOGIC = {"&&": "{0} & {1}", "||": "{0} | {1}", "!": "{0} == 0", "bool": "{0}"}
_REALS = ("bfloat16", "double", "float", "float16", "float32", "float64", "half")


def rule_of(name: str, kinds: set[str]) -> tuple[str, str, str]:
    """What operands of these kinds are taken as, the text, and the kind of what comes out."""
    common = "real" if len(kinds) > 1 else min(kinds)
    if name in REAL or name in _REALS:
        return "real", REAL.get(name, "{0}"), "real"
    if name in _LOGIC:
        return "truth", _LOGIC[name], "truth"
    if name in _COMPARISONS:
        return common, f"{{0}} {name} {{1}}", "truth"
    if name in _PROMOTING:
        return common, (_INTEGER if common == "integer" else _PROMOTING)[name], common
    if name == "?:":
        return common, "tl.where({2}, {0}, {1})", common
    if "int" in name:
        return "integer", "{0}", "integer"
    raise ValueError(f"{name} has no kernel on GPUs, expected another function")


# What two elements of a reduction become, and what changes nothing.
JOINED = {
    "sum": ("{0} + {1}", "0.0"),
    "product": ("{0} * {1}", "1.0"),
    "max": (f"tl.maximum({{0}}, {{1}}{_NAN}", "float('-inf')"),
    "min": (f"tl.minimum({{0}}, {{1}}{_NAN}", "float('inf')"),
}
