"""Derivatives of the expressions of `map` nodes, as expressions.

The table has a row for each function of `dlprim.graph.expressions.FUNCTIONS`: what reaches its
operands of the gradient of its result, or why nothing does. Where a function has no derivative at a
point it is PyTorch's convention: relu gives 0 at 0, equal operands of a maximum share the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dlprim.graph.expressions import Expression, number

# Of the gradient g of a result, the result r and the operands: what each operand gets, None for
# what gets nothing.
Rule = Callable[..., tuple[Expression | None, ...]]

_ZERO, _ONE, _TWO, _HALF = (number(value) for value in (0.0, 1.0, 2.0, 0.5))
_FAR = 128.0  # where sigmoids and densities have come to 0 or 1


def differentiated(
    expression: Expression, diff: Expression, result: Expression
) -> dict[int, Expression]:
    """For each operand of a node the gradient by it.

    Parameters
    ----------
    expression
        What the node computes.
    diff
        What stands for the gradient of its result.
    result
        What stands for its result, which derivatives such as that of exp are made of.
    """
    found: dict[int, Expression] = {}
    _descend(expression, diff, result, found)
    return found


def _descend(
    expression: Expression,
    diff: Expression,
    result: Expression | None,
    found: dict[int, Expression],
) -> None:
    name, *operands = expression
    if name == "input":
        found[operands[0]] = plus(found[operands[0]], diff) if operands[0] in found else diff
        return
    rule = None if name == "number" else DERIVATIVES[name]
    if rule is None or isinstance(rule, str):
        return
    parts = rule(diff, expression if result is None else result, *operands)
    for operand, part in zip(operands, parts, strict=True):
        if part is not None:
            _descend(operand, part, None, found)


# ---------------------------------------------------------------- expressions, simplified


def _value(a: Expression) -> float | None:
    return a[1] if a[0] == "number" else None


def plus(a: Expression, b: Expression) -> Expression:
    """Their sum."""
    x, y = _value(a), _value(b)
    if x is not None and y is not None:
        return number(x + y)
    if x == 0:
        return b
    return a if y == 0 else ("add", a, b)


def minus(a: Expression, b: Expression) -> Expression:
    """Their difference."""
    x, y = _value(a), _value(b)
    if x is not None and y is not None:
        return number(x - y)
    if x == 0:
        return negated(b)
    return a if y == 0 else ("subtract", a, b)


def negated(a: Expression) -> Expression:
    """The number below zero that is as large."""
    x = _value(a)
    if x is not None:
        return number(-x)
    return a[1] if a[0] == "negate" else ("negate", a)


def times(*factors: Expression) -> Expression:
    """Their product, from the left."""
    made = factors[0]
    for factor in factors[1:]:
        x, y = _value(made), _value(factor)
        if x is not None and y is not None:
            made = number(x * y)
        elif 1 in (x, y):
            made = factor if x == 1 else made
        elif -1 in (x, y):
            made = negated(factor if x == -1 else made)
        else:
            made = ("multiply", made, factor)
    return made


def over(a: Expression, b: Expression) -> Expression:
    """Their quotient."""
    return a if _value(b) == 1 else ("divide", a, b)


def where(condition: Expression, a: Expression, b: Expression) -> Expression:
    """a where the condition holds, else b."""
    return a if a == b else ("where", condition, a, b)


def _square(a: Expression) -> Expression:
    return times(a, a)


# ---------------------------------------------------------------- the table


def _by(derivative: Callable[[Expression, Expression], Expression]) -> Rule:
    """Of a function of one operand, by its derivative, of the operand and the result."""
    return lambda g, r, x: (times(g, derivative(x, r)),)


def _maximum(g: Expression, r: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    """With the number 0 it is relu, of which the result says as much as what it is of."""
    if 0 in (_value(a), _value(b)) and r[0] == "input":
        slope = where(("less_equal", r, _ZERO), _ZERO, g)
        return (slope, _ZERO) if _value(b) == 0 else (_ZERO, slope)
    return _fmax(g, r, a, b)


def _fmax(g: Expression, r: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    """With the number 0 the gradient at 0 is 0."""
    if _value(b) == 0:
        return where(("less_equal", a, b), _ZERO, g), _ZERO
    if _value(a) == 0:
        return _ZERO, where(("less_equal", b, a), _ZERO, g)
    return _greater(g, a, b)


def _greater(g: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    """The gradients by the greater of two, which equal ones share."""
    share = where(("equal", a, b), _HALF, _ONE)
    return (
        where(("less", a, b), _ZERO, times(g, share)),
        where(("less", b, a), _ZERO, times(g, share)),
    )


def _minimum(g: Expression, r: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    return _greater(g, a, b)[::-1]


def _power(g: Expression, r: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    exponent = _value(b)
    if exponent == 0:
        by_base = _ZERO
    elif exponent == 1:
        by_base = g
    elif exponent == 2:
        by_base = times(g, _TWO, a)
    else:
        by_base = times(g, b, ("power", a, minus(b, _ONE)))
        by_base = by_base if exponent is not None else where(("equal", b, _ZERO), _ZERO, by_base)
    # A power of zero is as flat as it is: no logarithm of what is not above zero.
    by_exponent = times(g, where(("greater", a, _ZERO), times(r, ("log", a)), _ZERO))
    return by_base, by_exponent


def _inside(x: Expression, low: float, high: float) -> Expression:
    return ("and", ("greater", x, number(low)), ("less", x, number(high)))


def _fmod(g: Expression, r: Expression, a: Expression, b: Expression) -> tuple[Expression, ...]:
    """r is a - b times their quotient, cut to a whole number."""
    return g, negated(times(g, ("round", over(minus(a, r), b))))


def _bounded(x: Expression) -> Expression:
    """x, or what is as far away as infinity to a slope that x is a factor of, but no infinity."""
    return ("minimum", ("maximum", x, number(-_FAR)), number(_FAR))


def _gelu(x: Expression, r: Expression) -> Expression:
    x = _bounded(x)
    share = times(_HALF, plus(_ONE, ("erf", times(x, number(math.sqrt(0.5))))))
    density = times(number(1 / math.sqrt(2 * math.pi)), ("exp", times(number(-0.5), _square(x))))
    return plus(share, times(x, density))


def _gelu_tanh(x: Expression, r: Expression) -> Expression:
    x, scale = _bounded(x), math.sqrt(2 / math.pi)
    cube = times(number(0.044715), x, x, x)
    bent = ("tanh", times(number(scale), plus(x, cube)))
    slope = times(number(scale), plus(_ONE, times(number(3 * 0.044715), _square(x))))
    share = times(_HALF, plus(_ONE, bent))
    return plus(share, times(_HALF, x, minus(_ONE, _square(bent)), slope))


def _mish(x: Expression, r: Expression) -> Expression:
    x = _bounded(x)
    bent = ("tanh", ("softplus", x))
    return plus(bent, times(x, ("sigmoid", x), minus(_ONE, _square(bent))))


def _swish(x: Expression, r: Expression) -> Expression:
    x = _bounded(x)
    share: Expression = ("sigmoid", x)
    return times(share, plus(_ONE, times(x, minus(_ONE, share))))


def _hardswish(g: Expression, r: Expression, x: Expression) -> tuple[Expression, ...]:
    slope = plus(times(x, number(1 / 3)), _HALF)
    inner = where(("greater", x, number(3)), _ONE, slope)
    return (times(g, where(("less", x, number(-3)), _ZERO, inner)),)


_CONDITION = "it is true or false"
_INTEGER = "it computes integers"
_STEPS = "it is constant but for steps, and its gradient zero"

DERIVATIVES: dict[str, Rule | str] = {
    "abs": _by(lambda x, r: ("sign", x)),
    "acos": _by(lambda x, r: negated(over(_ONE, ("sqrt", minus(_ONE, _square(x)))))),
    "acosh": _by(lambda x, r: over(_ONE, times(("sqrt", minus(x, _ONE)), ("sqrt", plus(x, _ONE))))),
    "add": lambda g, r, a, b: (g, g),
    "and": _CONDITION,
    "asin": _by(lambda x, r: over(_ONE, ("sqrt", minus(_ONE, _square(x))))),
    "asinh": _by(lambda x, r: over(_ONE, ("sqrt", plus(_square(x), _ONE)))),
    "atan": _by(lambda x, r: over(_ONE, plus(_ONE, _square(x)))),
    "atanh": _by(lambda x, r: over(_ONE, minus(_ONE, _square(x)))),
    "bitwise_and": _INTEGER,
    "bitwise_not": _INTEGER,
    "bitwise_or": _INTEGER,
    "bitwise_xor": _INTEGER,
    "ceil": _STEPS,
    "cos": _by(lambda x, r: negated(("sin", x))),
    "cosh": _by(lambda x, r: ("sinh", x)),
    "divide": lambda g, r, a, b: (over(g, b), negated(over(times(g, r), b))),
    "equal": _CONDITION,
    "erf": _by(lambda x, r: times(number(2 / math.sqrt(math.pi)), ("exp", negated(_square(x))))),
    "exp": _by(lambda x, r: r),
    "floor": _STEPS,
    "fmax": _fmax,
    "fmod": _fmod,
    "gelu": _by(_gelu),
    "gelu_tanh": _by(_gelu_tanh),
    "greater": _CONDITION,
    "greater_equal": _CONDITION,
    "hardsigmoid": lambda g, r, x: (where(_inside(x, -3, 3), times(g, number(1 / 6)), _ZERO),),
    "hardswish": _hardswish,
    "is_inf": _CONDITION,
    "is_nan": _CONDITION,
    "less": _CONDITION,
    "less_equal": _CONDITION,
    "log": lambda g, r, x: (over(g, x),),
    "maximum": _maximum,
    "minimum": _minimum,
    "mish": _by(_mish),
    "multiply": lambda g, r, a, b: (times(g, b), times(g, a)),
    "negate": lambda g, r, x: (negated(g),),
    "not": _CONDITION,
    "not_equal": _CONDITION,
    "or": _CONDITION,
    "power": _power,
    "reciprocal": lambda g, r, x: (negated(times(g, _square(r))),),
    "relu": lambda g, r, x: (where(("less_equal", r, _ZERO), _ZERO, g),),
    "relu6": lambda g, r, x: (where(_inside(r, 0, 6), g, _ZERO),),
    "remainder": _fmod,
    "round": _STEPS,
    "shift_left": _INTEGER,
    "shift_right": _INTEGER,
    "sigmoid": _by(lambda x, r: times(r, minus(_ONE, r))),
    "sign": _STEPS,
    "sin": _by(lambda x, r: ("cos", x)),
    "sinh": _by(lambda x, r: ("cosh", x)),
    "softplus": _by(lambda x, r: ("sigmoid", x)),
    "sqrt": lambda g, r, x: (over(times(_HALF, g), r),),
    "subtract": lambda g, r, a, b: (g, negated(g)),
    "swish": _by(_swish),
    "tan": _by(lambda x, r: plus(_ONE, _square(r))),
    "tanh": _by(lambda x, r: minus(_ONE, _square(r))),
    "where": lambda g, r, c, a, b: (None, where(c, g, _ZERO), where(c, _ZERO, g)),
    "xor": _CONDITION,
}
