"""Steps of optimizers in float64 numpy, which round the rows once per step.

Uses nothing of this library. The formulas are Keras 3's, on the rows of one step.
"""

import numpy as np

#: Bits of the significand after the point, and the exponent of the smallest normal number.
PRECISIONS = {
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float32": (23, -126),
    "float64": (52, -1022),
}


def spacing(values, dtype):
    """Returns the distance from each value to the next number of a dtype."""
    bits, least = PRECISIONS[dtype]
    exponents = np.frexp(np.abs(values))[1] - 1
    return np.ldexp(1.0, np.maximum(exponents, least) - bits)


def rounded(values, dtype):
    """Returns the values rounded to the nearest numbers of a dtype, ties to even."""
    unit = spacing(values, dtype)
    return np.rint(values / unit) * unit


class Rule:
    """An update rule with its slots: `step(rule, t, g, w)` returns the new rows [n, dim].

    The learning rate is rounded to float32, as Keras does. `shape` is of all rows, [rows, dim].
    """

    def __init__(self, step, lr, shape):
        self.lr = float(np.float32(lr))
        self._step, self._shape, self._slots, self._ids = step, shape, {}, None

    def run(self, t, ids, gradient, rows):
        """Returns the new rows of `ids` in step `t`, counted from 1."""
        self._ids = ids
        return self._step(self, t, gradient, rows)

    def get(self, name, initial=0.0, width=None):
        slots = self._slots.setdefault(
            name, np.full((self._shape[0], width or self._shape[1]), initial)
        )
        return slots[self._ids]

    def put(self, name, value):
        self._slots[name][self._ids] = value
        return value

    def average(self, name, rate, value, width=None):
        """Moves a slot to `value` by the fraction `rate`, and returns it."""
        old = self.get(name, width=width)
        return self.put(name, old + (value - old) * rate)


def sgd(rule, _, g, w):
    return w - rule.lr * g


def momentum(rule, _, g, w):
    return w + rule.put("m", 0.9 * rule.get("m") - rule.lr * g)


def nesterov(rule, _, g, w):
    return w + 0.9 * rule.put("m", 0.9 * rule.get("m") - rule.lr * g) - rule.lr * g


def adagrad(rule, _, g, w):
    return w - rule.lr * g / np.sqrt(rule.put("s", rule.get("s", 0.1) + g * g) + 1e-7)


def adadelta(rule, _, g, w):
    squares = rule.average("squares", 0.05, g * g)
    step = np.sqrt(rule.get("steps") + 1e-7) * g / np.sqrt(squares + 1e-7)
    rule.average("steps", 0.05, step * step)
    return w - rule.lr * step


def rmsprop(rule, _, g, w):
    rms, mean = rule.average("rms", 0.1, g * g), rule.average("mean", 0.1, g)
    step = rule.lr * g / np.sqrt(rms - mean * mean + 1e-2)
    return w - rule.put("m", 0.5 * rule.get("m") + step)


def adam(rule, t, g, w, amsgrad=False):
    m, v = rule.average("m", 0.1, g), rule.average("v", 0.001, g * g)
    if amsgrad:
        v = rule.put("vhat", np.maximum(rule.get("vhat"), v))
    alpha = rule.lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - alpha * m / (np.sqrt(v) + 1e-7)


def amsgrad(rule, t, g, w):
    return adam(rule, t, g, w, amsgrad=True)


def adamax(rule, t, g, w):
    m = rule.average("m", 0.1, g)
    u = rule.put("u", np.maximum(0.999 * rule.get("u"), np.abs(g)))
    return w - rule.lr * m / ((1 - 0.9**t) * (u + 1e-7))


def nadam(rule, t, g, w):
    m, v = rule.average("m", 0.1, g), rule.average("v", 0.001, g * g)
    us = [0.9 * (1 - 0.5 * 0.96**i) for i in range(1, t + 2)]
    product = np.prod(us[:-1])
    hat = us[-1] * m / (1 - product * us[-1]) + (1 - us[-2]) * g / (1 - product)
    return w - rule.lr * hat / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)


def ftrl(rule, _, g, w):
    old = rule.get("accumulator", 0.1)
    new = rule.put("accumulator", old + g * g)
    linear = rule.get("linear") + g - (np.sqrt(new) - np.sqrt(old)) / rule.lr * w
    rule.put("linear", linear)
    return (np.clip(linear, -0.01, 0.01) - linear) * rule.lr / np.sqrt(new)


def lion(rule, _, g, w):
    m = rule.get("m")
    rule.put("m", 0.99 * m + 0.01 * g)
    return w - rule.lr * np.sign(0.9 * m + 0.1 * g)


def lamb(rule, t, g, w):
    m, v = rule.average("m", 0.1, g), rule.average("v", 0.001, g * g)
    step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
    norms = (np.linalg.norm(each, axis=1, keepdims=True) for each in (w, step))
    ratio = [*norms]
    ratio = np.where((ratio[0] > 0) & (ratio[1] > 0), ratio[0] / np.maximum(ratio[1], 1e-300), 1)
    return w - rule.lr * ratio * step


def rowwise_adagrad(rule, _, g, w):
    mean = np.mean(g * g, axis=1, keepdims=True)
    return w - rule.lr * g / (np.sqrt(rule.put("s", rule.get("s", 0.1, 1) + mean)) + 1e-7)


def rowwise_adam(rule, t, g, w):
    m = rule.average("m", 0.1, g)
    v = rule.average("v", 0.001, np.mean(g * g, axis=1, keepdims=True), width=1)
    return w - rule.lr * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)


def halving(rule, _, g, w):
    """The rule of `Halving` in `test_exact.py`, which runs on gathered rows."""
    return w - rule.lr * rule.put("m", 0.5 * rule.get("m") + g)
