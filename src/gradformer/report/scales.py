"""From numbers to places on a drawing: ranges, ticks and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev


@dataclass(frozen=True)
class Scale:
    """Maps ``low`` … ``high`` to ``first`` … ``last`` in the unit of the drawing."""

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.first + (value - low) / (high - low) * (self.last - self.first)

    def ticks(self, count: int = 5, whole: bool = False) -> list[float]:
        """About ``count`` round numbers inside the range; only ``whole`` ones if asked."""
        if self.logarithmic:
            found = _log_ticks(self.low, self.high, count)
            if len(found) >= 2:
                return found
        return _round_ticks(self.low, self.high, count, 1.0 if whole else 0.0)


def fit_scale(
    values: Iterable[float],
    first: float,
    last: float,
    *,
    given: tuple[float, float] | None = None,
    margin: float = 0.04,
    logarithmic: bool = False,
) -> Scale:
    """A scale of the ``given`` range, or one that holds all finite ``values`` with a little room; a
    single value gets some too."""
    if given is not None:
        return Scale(*given, first, last)
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not logarithmic)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if logarithmic:
        factor = (high / low) ** margin if high > low else 2.0
        return Scale(low / factor, high * factor, first, last, True)
    room = (high - low) * margin or abs(high) * 0.5 or 0.5
    return Scale(low - room, high + room, first, last)


def wants_logarithm(values: Sequence[float]) -> bool:
    """Whether positive values span so much that small ones would lie on the axis."""
    finite = [v for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) > 30 * min(finite)


def tick_labels(values: Sequence[float]) -> list[str]:
    """Ticks as text with just the decimals that tell them apart.

    >>> tick_labels([0.9975, 1.0, 1.0025]), tick_labels([0.0, 2e-8])
    (['0.9975', '1', '1.0025'], ['0', '2×10⁻⁸'])
    """
    gaps = [b - a for a, b in pairwise(values) if b > a]
    if not gaps or max(map(abs, values)) < 1e-4 or max(map(abs, values)) >= 1e6:
        return [number(value) for value in values]
    places = max(0, 2 - math.floor(math.log10(min(gaps))))
    texts = [f"{value:.{places}f}" for value in values]
    return [(t.rstrip("0").rstrip(".") if "." in t else t).replace("-", "−") for t in texts]


def number(value: float | None, digits: int = 4) -> str:
    """A number for a label or a table, as short as ``digits`` significant digits allow.

    >>> [number(v) for v in (0.25, 1234567.0, 1e-7, -3.0, None)]
    ['0.25', '1.235×10⁶', '10⁻⁷', '−3', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = power if mantissa == "1" else f"{mantissa}×{power}"
    return text.replace("-", "−")


def significant(value: float) -> str:
    """A positive number with its first three digits.

    >>> [significant(v) for v in (267.49, 12.268, 9.996, 0.45, 0.01412)]
    ['267', '12.3', '10.0', '0.450', '0.0141']
    """
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}"


def decimals(std: float | None, value: float) -> int:
    """Decimals that two significant digits of the spread need, or four of the value alone."""
    if std:
        return max(0, 1 - math.floor(math.log10(std)))
    return max(0, 3 - math.floor(math.log10(abs(value)))) if value else 3


def spread(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation of the sample, both to the digits that the latter deserves.

    None and NaN, where there is no value, do not count.

    >>> spread([0.5, 0.7, None]), spread([0.5]), spread([math.nan]), spread([1e-9, 2e-9])
    ('0.60 ± 0.14', '0.5000', '–', '1.5×10⁻⁹ ± 7.1×10⁻¹⁰')
    """
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not known:
        return "–"
    mean, std = fmean(known), stdev(known) if len(known) > 1 else None
    places = decimals(std, mean)
    if places > 6 and abs(mean) < 1e-3:  # the target has a small unit
        return number(mean) if std is None else f"{number(mean)} ± {number(std, 2)}"
    places = min(places, 6)
    text = f"{mean:.{places}f}" if std is None else f"{mean:.{places}f} ± {std:.{places}f}"
    return text.replace("-", "−")


def signed(value: float, places: int) -> str:
    """A difference with its sign and so many decimals; with its first digits, where these are more
    than six.

    >>> signed(-0.25, 2), signed(0.0, 3), signed(4.51e-8, 9)
    ('−0.25', '+0.000', '+4.5×10⁻⁸')
    """
    if places > 6:
        return "+" * (value > 0) + number(value, 2)
    return f"{value:+z.{places}f}".replace("-", "−")


def evenly(length: int, most: int) -> list[int]:
    """At most ``most`` positions of ``length``, evenly spread from first to last.

    >>> evenly(3, 6), evenly(12, 4)
    ([0, 1, 2], [0, 4, 7, 11])
    """
    if length <= most:
        return list(range(length))
    return [round(k * (length - 1) / (most - 1)) for k in range(most)]


def duration(seconds: float) -> str:
    """Time in the two largest units; – for none, as of an exported model, which keeps no record.

    >>> [duration(seconds) for seconds in (0.0, 8.25, 59.96, 3540, 3600, 3725)]
    ['–', '8.2 s', '1 min', '59 min', '1 h 0 min', '1 h 2 min']
    """
    if not seconds:
        return "–"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _round_ticks(low: float, high: float, count: int, least: float) -> list[float]:
    raw = max((high - low) / count, least)
    power = 10.0 ** math.floor(math.log10(raw))
    steps = [m * power for m in (1, 2, 5, 10)]
    step = next(s for s in steps if s >= 0.9 * raw or s == steps[-1])
    if step > high - low:  # the range may hold no multiple of the step
        step = max((s for s in steps if least <= s <= high - low), default=step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        found = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
        if len(found) >= min(count, 4) - 1:
            break
    thin = max(1, math.ceil(len(found) / (count + 1)))
    return found[::thin]
