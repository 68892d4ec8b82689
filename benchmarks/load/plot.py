"""SVG plots without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from load.results import Result

WIDTH = 860
LEFT, RIGHT, LINE = 250, 250, 26
GOOD, BAD, OTHER, GREY = "#1a7f4b", "#b3261e", "#3b5bdb", "#8a8f98"
Point = tuple[float, float]


def ratios(rows: Sequence[Result]) -> str:
    """Return a plot of the distance of each ratio from its bar: right of the line is better.

    Args:
        rows: Results with a ratio.
    """
    margins = [[_margin(one, one[key]) for key in ("low", "median", "high")] for one in rows]
    ends = [abs(math.log2(value)) for margin in margins for value in margin]
    span = max(1.0, *ends) * 1.1
    height = 60 + LINE * len(rows)

    def x(margin: float) -> float:
        return LEFT + (math.log2(margin) / span + 1) / 2 * (WIDTH - LEFT - RIGHT)

    parts = [
        _line(x(1), 30, x(1), height - 24, GREY, dash=True),
        _text(x(1), 20, "the bar", anchor="middle"),
        _text(x(1) + 8, height - 8, "better →", colour=GREY),
        _text(x(1) - 8, height - 8, "← worse", anchor="end", colour=GREY),
    ]
    for number, (one, margin) in enumerate(zip(rows, margins, strict=True)):
        y = 46 + LINE * number
        colour, fill = (GOOD, GOOD) if one["reached"] else (BAD, "#fff")
        low, median, high = (x(value) for value in margin)
        name = f"{one['row']} ({'SQLite' if one['database'] == 'sqlite' else 'PostgreSQL'})"
        said = f"{one['median']:.2f} × (bar {one['bar']}): {'reached' if one['reached'] else 'missed'}"
        parts += [
            _text(LEFT - 12, y + 4, name, anchor="end"),
            _line(min(low, high), y, max(low, high), y, colour, width=3),
            f'<circle cx="{median:.1f}" cy="{y}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>',
            _text(WIDTH - RIGHT + 12, y + 4, said, colour=colour),
        ]
    return _svg(WIDTH, height, "Ratios beside their bars", parts)


def memory(soak: Result) -> str:
    """Memory over time.

    Args:
        soak: The soak's result.
    """
    points = [(at / 60, size / 2**20) for at, size in soak["samples"]]
    title = f"Memory of the gateway, {soak['growth']:+.1%} after the warm-up"
    return _chart(title, "minutes", "MiB", {"resident memory": points}, mark=soak["warm_seconds"] / 60)


def latencies(one: Result) -> str:
    """Latencies by the share of requests that exceeds them.

    Args:
        one: A result of an open loop.
    """
    lines: dict[str, Sequence[Point]] = {}
    for side in one["sides"]:
        kinds = side["latency_us"][0].items()
        # One in two, one in ten, one in a hundred: each power of ten has the same width.
        lines[side["label"]] = [(-math.log10(1 - float(q)), us / 1e3) for q, us in kinds if float(q) < 1]
    return _chart("Latency from when a request was due", "nines: 2 is p99, 3 is p99.9", "ms", lines)


def _margin(one: Result, ratio: float) -> float:
    margin: float = ratio / one["bar_ratio"] if one["at_least"] else one["bar_ratio"] / ratio
    return margin


def _chart(
    title: str, across: str, up: str, lines: dict[str, Sequence[Point]], *, mark: float | None = None
) -> str:
    height, left, bottom, top, right = 320, 70, 270, 50, WIDTH - 30
    step_x = _step(max(x for line in lines.values() for x, _ in line))
    step_y = _step(max(y for line in lines.values() for _, y in line))
    most_x, most_y = 4 * step_x, 4 * step_y

    def place(x: float, y: float) -> Point:
        return left + x / most_x * (right - left), bottom - y / most_y * (bottom - top)

    parts = [_text(left, 24, title), _text(right, bottom + 40, across, anchor="end", colour=GREY)]
    for step in range(5):
        x, y = place(step_x * step, step_y * step)
        parts += [
            _line(left, y, right, y, "#e3e5e8"),
            _text(left - 8, y + 4, f"{step_y * step:,.6g}", anchor="end", colour=GREY),
            _text(x, bottom + 20, f"{step_x * step:,.6g}", anchor="middle", colour=GREY),
        ]
    parts.append(_text(left - 8, top - 10, up, anchor="end", colour=GREY))
    if mark is not None:
        x, _ = place(mark, 0)
        parts += [_line(x, top, x, bottom, GREY, dash=True), _text(x + 6, top + 12, "warm", colour=GREY)]
    for number, (name, line) in enumerate(lines.items()):
        colour = (GOOD, OTHER)[number % 2]
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts += [
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>',
            _text(right - 180 * (len(lines) - 1 - number), 24, name, anchor="end", colour=colour),
        ]
    return _svg(WIDTH, height, title, parts)


def _step(most: float) -> float:
    """Return a round number whose fourfold reaches the maximum."""
    # A hair less, or the last digit of a sum would take the next step.
    least = max(most, 1e-9) / 4 * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        round_one * power for round_one in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if round_one * power >= least
    )


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#1c1e21") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: bool = False
) -> str:
    dashes = ' stroke-dasharray="4 4"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashes}/>'
    )
