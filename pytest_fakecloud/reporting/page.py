"""The HTML pages of failing tests in a folder, and their index."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from ..core.wording import counted
from .as_json import as_json
from .masking import Mask
from .private_files import write_private
from .replay import states
from .trace import document, headline, whole

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from .model import Report

_INDEX = "index.html"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


Picture: TypeAlias = "Callable[[AnyCloud, Report, Mapping[str, Any]], Mapping[str, Any]]"
"""A function that returns the data of a page, given the cloud, its report and the states of the
fakes.
"""


def page(cloud: AnyCloud, report: Report, picture: Picture | None = None) -> str:
    """Return the HTML page of one test; ``picture`` makes the page's data (default: the report's
    data).
    """
    masked: Mapping[str, Any] = Mask(cloud).value(states(cloud, report))
    if picture is not None:
        return document(picture(cloud, report, masked))
    return document({**as_json(report), "states": masked})


def write(cloud: AnyCloud, folder: Path, report: Report, picture: Picture | None = None) -> Path:
    """Write the page of a test into a folder as a file that only its owner can read; return its
    path.
    """
    return write_private(folder / f"{file_name(report.test)}.html", page(cloud, report, picture))


def write_index(folder: Path) -> Path | None:
    """Write the index of all pages in a folder, grouped by finding; return None if there are no
    pages.
    """
    pages = sorted(path for path in folder.glob("*.html") if path.name != _INDEX)
    if not pages:
        return None
    groups: dict[str, list[tuple[Path, Mapping[str, Any]]]] = {}
    for path in pages:
        data = _summary(path)
        groups.setdefault(_first_finding(data).get("kind", ""), []).append((path, data))
    title = counted(len(pages), "failing test")
    # Sort groups by size, with the most frequent finding first and tests without a finding last.
    ordered = sorted(groups.items(), key=lambda group: (not group[0], -len(group[1])))
    body = [f"<header><h1>{title}</h1>"]
    for kind, members in ordered:
        body += _group(kind, members)
    return write_private(folder / _INDEX, whole(title, "\n".join([*body, "</header>"])))


def _summary(path: Path) -> Mapping[str, Any]:
    """Return the JSON file that belongs to a page; an empty mapping if it is missing or invalid."""
    try:
        found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _first_finding(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(iter(data.get("findings", ())), {})
    return found


def _group(kind: str, members: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[str]:
    texts = {_first_finding(data).get("text", "") for _, data in members}
    name = kind.replace("_", " ").capitalize() or "No finding"
    shared = texts.pop() if len(texts) == 1 else ""
    heading = shared or name
    count = f" ({len(members)})" if len(members) > 1 else ""
    yield f"<section><h2>{html.escape(heading)}{count}</h2><ul>"
    for path, data in members:
        link = html.escape(quote(path.name))
        lines = [headline(data.get("failure", ""))]
        if not shared:
            lines.append(_first_finding(data).get("text", ""))
        below = "".join(
            f'<br><span class="soft">{html.escape(line)}</span>' for line in lines if line
        )
        yield f'<li><a href="{link}">{html.escape(data.get("test", path.stem))}</a>{below}</li>'
    yield "</ul></section>"


def file_name(name: str) -> str:
    """Return a file name for a test that is valid on every system and different for each test."""
    function, bracket, parameters = name.partition("[")
    parameters = parameters.removesuffix("]") if bracket else ""
    kept = _UNSAFE.sub("-", parameters).strip("-.")
    cleaned = "-".join(filter(None, (_UNSAFE.sub("-", function).strip("-."), kept)))
    if kept == parameters and len(cleaned) <= 150:
        return cleaned
    # Two tests may differ only in characters that were replaced.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{cleaned[:130]}-{digest}"
