"""Text and numbers as a reader meets them: hostile characters made harmless, sizes rounded sensibly.

Names, versions, token texts and messages come from the engine under audit. Nothing here escapes for HTML or Markdown;
that is the writer's own part. What is done here holds everywhere: no control characters, no characters that reorder a line.
"""

from __future__ import annotations

import math
import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MINUS = "\N{MINUS SIGN}"
_VISIBLE = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _harmful(character: str) -> bool:
    """Whether a character must not reach a page, a terminal or an XML file.

    Control characters, surrogates, unassigned and private ones, and the format characters that reorder or hide text;
    the zero-width joiners stay, since several scripts need them.
    """
    if character in "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}":
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")


def clean(text: object) -> str:
    r"""The text with every harmful character replaced; line breaks and tabs stay.

    >>> clean("a\x1b[31mb\n")
    'a�[31mb\n'
    """
    said = str(text)
    if said.isprintable():  # nearly always, and much faster
        return said
    return "".join(REPLACEMENT if c not in "\n\t" and _harmful(c) else c for c in said.replace("\r\n", "\n"))


def one_line(text: object, limit: int = 400) -> str:
    r"""The cleaned text on one line, shortened to ``limit`` characters.

    >>> one_line(" two\n  lines ")
    'two lines'
    """
    return shorten(" ".join(clean(text).split()), limit)


def shorten(text: str, limit: int) -> str:
    """The text itself, or its beginning with an ellipsis.

    >>> shorten("speculative", 6)
    'specu…'
    """
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def token(text: object, limit: int = 14) -> str:
    r"""A token's text with its white space made visible.

    >>> token(" the\n")
    '␣the⏎'
    """
    visible = "".join(_VISIBLE.get(c, c) for c in str(text))
    return shorten(clean(visible), limit) or "(empty)"


def count(n: float) -> str:
    """A count with its thousands apart.

    >>> count(1234567), count(0.0)
    ('1,234,567', '0')
    """
    return f"{n:,.0f}"


def about(n: float) -> str:
    """A count in words, to two or three figures.

    >>> about(950), about(12_345), about(1_234_567), about(2_000_000)
    ('950', '12,300', '1.23 million', '2 million')
    """
    if n < 1000:
        return count(n)
    if n < 999_500:
        return count(_to_figures(n))
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if n >= 0.9995 * size:
            return f"{_to_figures(n / size):,.6g} {name}"
    return count(n)


def _to_figures(x: float, figures: int = 3) -> float:
    return round(x, figures - 1 - math.floor(math.log10(abs(x))))


def plural(n: int, noun: str, nouns: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "mode"), plural(3, "mode"), plural(2, "check of it", "checks of it")
    ('1 mode', '3 modes', '2 checks of it')
    """
    return f"{count(n)} {noun if n == 1 else nouns or noun + 's'}"


def number(x: float | None, figures: int = 3) -> str:
    """A statistic to three figures, never with an exponent where it can be read without one.

    >>> number(1234.56), number(0.0012345), number(41.26), number(None), number(2.5e-7)
    ('1,235', '0.00123', '41.3', '–', '2.50 × 10⁻⁷')
    """
    if x is None or math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else _MINUS + "∞"
    if x == 0:
        return "0"
    if abs(x) < 1e-4 or abs(x) >= 1e9:
        return _scientific(x, figures)
    decimals = max(0, figures - 1 - math.floor(math.log10(abs(x))))
    return f"{x:,.{decimals}f}".replace("-", _MINUS)


def _scientific(x: float, figures: int) -> str:
    mantissa, exponent = f"{x:.{figures - 1}e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}".replace("-", _MINUS)


def probability(p: float | None) -> str:
    """A p-value to two figures.

    >>> probability(0.4231), probability(3.14e-9), probability(1.0), probability(0.0), probability(None)
    ('0.42', '3.1 × 10⁻⁹', '1.00', '< 10⁻³⁰⁷', '–')
    """
    if p == 0:
        return "< 10⁻³⁰⁷"  # below what a float can hold
    return "1.00" if p is not None and p >= 0.995 else number(p, figures=2)


def one_in(rate: float) -> str:
    """A small probability as "1 in so many".

    >>> one_in(1e-6), one_in(0.05)
    ('1 in 1,000,000', '1 in 20')
    """
    return f"1 in {count(1 / rate)}" if rate > 0 else "0"


def evidence(log10: float | None) -> str:
    """log10 of an e-value, signed, to one decimal.

    >>> evidence(9.34), evidence(-0.31), evidence(float("-inf")), evidence(None), evidence(-0.01)
    ('+9.3', '−0.3', '−∞', '–', '0.0')
    """
    if log10 is None or math.isnan(log10):
        return "–"
    if math.isinf(log10):
        return "+∞" if log10 > 0 else _MINUS + "∞"
    rounded = round(log10, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", _MINUS)


def duration(seconds: float) -> str:
    """A time span.

    >>> duration(0.34), duration(42.4), duration(361), duration(7300)
    ('0.3 s', '42 s', '6 min 1 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
