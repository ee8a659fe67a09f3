"""The page *Measured* of the documentation, from one file of figures, with pictures.

``python -m benchmarks --site`` writes ``docs/reference/measured.json``, the pictures and the page.
``python -m docs.generate`` writes the page from the file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import plots

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_PICTURES = "images/benchmarks"
FIGURES = _DOCS / "reference" / "measured.json"


def write(whole: Mapping[str, Any]) -> Path:
    """Write the results of all parts, their pictures and their page; return the path of the page."""
    FIGURES.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(_DOCS / _PICTURES, ignore_errors=True)
    plots.draw(whole["parts"], _DOCS / _PICTURES)
    place = FIGURES.with_suffix(".md")
    place.write_text(page(), encoding="utf-8")
    return place


def page() -> str:
    """Return the page for the file of figures."""
    whole = json.loads(FIGURES.read_text("utf-8"))
    drawn = plots.places(whole["parts"])
    return text(whole, {title: f"../{_PICTURES}/{name}" for title, name in drawn.items()})


def text(whole: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """Return a page of Markdown; ``pictures`` are the paths of pictures by title."""
    machine = whole["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["versions"].items() if version
    )
    lines = [
        "<!-- Generated from measured.json, which `python -m benchmarks --site` writes. -->",
        "",
        "# Measured",
        "",
        f"On {machine['cpu']} with {machine['cores']} cores (load {machine['load']} at the beginning), "
        f"{machine['python']}, {machine['system']}. With {versions}.",
    ]
    for part in whole["parts"]:
        lines += ["", f"## {part['part']}", ""]
        if part["figures"]:
            lines += ["| Figure | Value | Limit | |", "|---|---:|---|---|"]
            for figure in part["figures"]:
                verdict = {None: "", True: "holds", False: "missed"}[figure["holds"]]
                verdict = "" if figure["limit"] == "no limit" else verdict
                label = figure["label"].strip().replace("|", "/")
                value = f"{figure['value']:,.2f}{figure['unit']}"
                lines.append(f"| {label} | {value} | {figure['limit']} | {verdict} |")
        for table in part["tables"]:
            if not table["title"]:
                continue
            lines += ["", f"### {part['part']}: {table['title']}", ""]
            lines += [
                "| | median us | best us | spread | against the first |",
                "|---|---:|---:|---:|---:|",
            ]
            for row in table["rows"]:
                lines.append(
                    f"| {row['name']} | {row['p50_us']:,.1f} | {row['best_us']:,.1f} "
                    f"| {row['spread']:.0%} | {row['ratio']:,.2f}x |"
                )
            lines += [f"| {name} | {why} | | | |" for name, why in table["missing"].items()]
            lines += _pictured(table["title"], pictures)
        for figure in part["curves"]:
            lines += _pictured(figure["title"], pictures)
    return "\n".join(lines) + "\n"


def _pictured(title: str, pictures: Mapping[str, str]) -> list[str]:
    return ["", f"![{title}]({pictures[title]})"] if title in pictures else []
