"""Draw the results as SVG: curves of cost against work, and bars of a table."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 80, 170, 36, 44
COLOURS = ("#1b6ac9", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c", "#475569")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#334155}.title{font-weight:600}"
    ".grid{stroke:#cbd5e1;stroke-width:.5}path{fill:none;stroke-width:2}"
)


def draw(parts: Iterable[Mapping[str, Any]], folder: Path) -> dict[str, Path]:
    """Write a picture for each curve and each table with a title; return their paths by title."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for part in parts:
        pictures = {curve["title"]: curves(curve) for curve in part["curves"]}
        pictures |= {table["title"]: bars(table) for table in part["tables"] if table["title"]}
        for title, name in places([part]).items():
            path = paths[title] = folder / name
            path.write_text(pictures[title], encoding="utf-8")
    return paths


def places(parts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the file name of each picture by its title."""
    return {
        drawn["title"]: re.sub(
            r"[^a-z0-9]+", "-", f"{part['part']}-{drawn['title']}".lower()
        ).strip("-")
        + ".svg"
        for part in parts
        for drawn in (*part["curves"], *part["tables"])
        if drawn["title"]
    }


def curves(curve: Mapping[str, Any]) -> str:
    """Draw microseconds by amount of work, with both axes logarithmic, so that a constant cost is a
    flat line.
    """
    series: Mapping[str, Sequence[Sequence[float]]] = curve["series"]
    points = [point for line in series.values() for point in line]
    across = _decades([x for x, _ in points])
    up = _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return (
            LEFT + width * (math.log10(x) - across[0]) / (across[-1] - across[0]),
            HEIGHT - BOTTOM - height * (math.log10(y) - up[0]) / (up[-1] - up[0]),
        )

    parts = []
    for power in across:
        x, _ = place(10**power, 10 ** up[0])
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        )
        parts.append(_text(x, HEIGHT - BOTTOM + 16, _short(power), "middle"))
    for power in up:
        _, y = place(10 ** across[0], 10**power)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, f"{_short(power)} us", "end"))
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" stroke="{colour}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        below = TOP + 10 + 18 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{below - 4}" r="4" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 24, below, name))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, curve["work"], "middle"))
    return _picture(f"{curve['title']}, microseconds each", HEIGHT, parts)


def bars(table: Mapping[str, Any]) -> str:
    """Draw the medians of a table on a logarithmic axis, and name the missing libraries with the
    reason.
    """
    rows = table["rows"]
    scale = _decades([row["p50_us"] for row in rows])
    label, step = 230, 26
    parts = []
    for number, row in enumerate(rows):
        y = TOP + step * number
        part = (math.log10(row["p50_us"]) - scale[0]) / (scale[-1] - scale[0])
        width = max(2.0, (WIDTH - label - 110) * part)
        parts.append(_text(label - 8, y + 14, row["name"], "end"))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<rect x="{label}" y="{y}" width="{width:.1f}" height="{step - 8}" fill="{colour}"/>'
        )
        parts.append(_text(label + width + 6, y + 14, f"{row['p50_us']:,.1f} us"))
    for number, (name, why) in enumerate(table["missing"].items(), len(rows)):
        parts.append(_text(label - 8, TOP + step * number + 14, name, "end"))
        parts.append(_text(label, TOP + step * number + 14, why))
    height = TOP + step * (len(rows) + len(table["missing"])) + 10
    return _picture(f"{table['title']}, median", height, parts)


def _decades(values: Sequence[float]) -> list[int]:
    """Return the powers of ten around the values, at least two."""
    first = math.floor(math.log10(max(min(values), 1e-3)))
    last = math.ceil(math.log10(max(values)))
    return list(range(first, max(last, first + 1) + 1))


def _short(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10**power:g}"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _picture(title: str, height: float, parts: Iterable[str]) -> str:
    head = f'<text class="title" x="8" y="20">{html.escape(title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
        f"<style>{STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>{head}{"".join(parts)}</svg>\n'
    )
