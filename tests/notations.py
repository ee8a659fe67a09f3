r"""The notations of tests that are written as text: scenarios, rows and golden texts.

A scenario (`== <name> {"setting": 1}`) has lines `<line> => <reply>`, and its player (`Player`) decides
what a line is: a request, a command, `client: command`, or a method. `@ 5s` advances the clock, `save`
and `restore` make and restore a snapshot, `$name` is a value of an earlier reply, `{x*9}` repeats a
text, and `{a|b}` plays the line for each alternative. Indented lines belong to the line above them. The
lines before the first scenario are played before each of them. A line that begins with `#` is a comment.

Rows (`rows`) are lines `<text> => <result>` under a heading (`== <heading>`). Golden texts (`golden`)
are compared and written.

A `RequestPlayer` plays HTTP requests with their responses.
`POST /v2/publish/DEST | -Retries: 0 < hello => 200 {"messageId": "$m"}` is a request with a header, a
body and its response. All three are optional; the status is 2xx if none is given. A body may be a Python
literal, `b"\xff"`. A line that begins with `<` sends the last request with another body, `3x` before a
request sends it three times, and `{GET|PUT} /info` sends one request for each alternative of a word.

A response is the whole JSON, `has <JSON>` for a part of it (of a list of objects, a part of each), or
`lacks <keys>`. After a status it may also be the text of the error, or `has` and a part of this text.
A string that ends in `...` matches by its beginning. The first `$name` in a response keeps a value. A
response may end with headers, ` | X-A: 1`, of which one without a value is absent.
"""

from __future__ import annotations

import ast
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import ndiff
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from pytest_fakecloud.http.messages import Answer, Request

ROOT = Path(__file__).parents[1]
_REPLY = re.compile(r"(\d{3})?\s*(has |lacks )?(.*)", re.DOTALL)
_HEADERS = re.compile(r"(?: \| [\w-]+:[^|]*)+$")
_ALTERNATIVES = re.compile(r'\{((?!["}])[^{}]*\|[^{}]*)\}')
"""Texts in braces with a bar between them. JSON objects begin with a quotation mark."""


@dataclass
class Fetched:
    """A response of a fake."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json()["error"])


def scenarios(file: Path) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Return the settings and the lines of each scenario of a file, by its name."""
    by_name: dict[str, tuple[dict[str, Any], list[str]]] = {}
    shared, *texts = file.read_text(encoding="utf-8").split("\n== ")
    for text in texts:
        head, *lines = text.splitlines()
        lines = [line for line in shared.splitlines() + lines if line and line[0] != "#"]
        name, brace, settings = head.partition(" {")
        assert name not in by_name, f"{file.name} has two scenarios {name!r}"
        by_name[name] = (json.loads(brace + settings or "{}"), lines)
    return by_name


def cases(folder: Path, *left_out: str) -> list[ParameterSet]:
    """Return the scenarios of all files of a folder, for a parametrized test."""
    return [
        pytest.param(*scenario, id=f"{file.stem}-{name}")
        for file in sorted(folder.glob("*.txt"))
        if file.stem not in left_out
        for name, scenario in scenarios(file).items()
    ]


class Player(ABC):
    """Plays a scenario; `step` says what a line is."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    @property
    @abstractmethod
    def fake(self) -> Any:
        """The fake of the scenario."""

    @abstractmethod
    def step(self, line: str, reply: str) -> None:
        """Play a line that is none of those that all scenarios have, and check its reply."""

    def play(self, lines: list[str]) -> None:
        """Play the lines, each with the indented ones below it."""
        while lines:
            more = next(
                (at for at, heading in enumerate(lines[1:], 1) if heading[0] != " "), len(lines)
            )
            try:
                for line in alternatives(lines[0]):
                    self.line(line, lines[1:more])
            except AssertionError as error:
                raise AssertionError(f"{lines[0]}\n{error}") from error
            lines = lines[more:]

    def line(self, text: str, below: list[str]) -> None:
        """Play one line."""
        line, _, reply = self.filled(text).partition(" => ")
        if line == "save":
            self.saved = self.fake.snapshot()
        elif line == "restore":
            self.fake.restore(self.saved)
        elif line[0] == "@":
            self.move(line[2:], below)
        else:
            self.step(line, reply)

    def move(self, how: str, below: list[str]) -> None:
        """Move the clock."""
        self.fake.clock.advance(how)

    def filled(self, text: str) -> str:
        """Return a line with its repeated texts, and with the values that were kept."""
        return re.sub(r"\$(\w+)", lambda match: self.kept.get(match[1], match[0]), repeated(text))


class RequestPlayer(Player):
    """Sends the requests of a scenario, and checks the responses."""

    def __init__(self) -> None:
        super().__init__()
        self.request = ""

    @abstractmethod
    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Fetched:
        """Send one request."""

    def step(self, line: str, reply: str) -> None:
        """Send the request of a line, and check its response."""
        count, times, rest = line.partition("x ")
        if not (times and count.isdecimal()):
            count, rest = "1", line
        if rest[0] == "<":
            rest = f"{self.request} {rest}"
        self.request = rest.partition(" < ")[0]
        target, headers, body = self.parts(rest)
        method, path = target.split(" ", 1)
        for _ in range(int(count)):
            self.check(self.send(method, path.replace(" ", "%20"), headers, body), reply)

    def parts(self, line: str) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return the target, the headers and the body of a line."""
        return parts(line)

    def check(self, answer: Fetched, reply: str) -> None:
        """Compare a response."""
        reply = self.without_headers(answer, reply)
        status, how, expected = _REPLY.fullmatch(reply).groups()  # type: ignore[union-attr]
        if status is None:
            assert 200 <= answer.status <= 299, answer
        else:
            assert answer.status == int(status), answer
        if not expected:
            return
        if answer.status >= 400 and how != "lacks " and expected[0] != "{":
            error = answer.error
            assert expected in error if how else expected == error, answer
            return
        if how == "lacks ":
            assert not set(json.loads(expected)) & set(answer.json()), answer
        elif answer.body or expected != '""':
            wanted = expected if expected[0] == "$" else json.loads(expected)
            self.compare(answer.json(), wanted, part=bool(how))

    def without_headers(self, answer: Fetched, reply: str) -> str:
        """Compare the headers at the end of a reply, and return the rest."""
        match = _HEADERS.search(reply)
        for name, value in parts(match[0])[1] if match else ():
            assert answer.headers.get(name, "") == value, (name, answer)
        return reply[: match.start()] if match else reply

    def compare(self, value: Any, expected: Any, *, part: bool) -> None:
        """Compare JSON values; with `part`, objects may have more members."""
        if isinstance(expected, str) and re.fullmatch(r"\$\w+", expected):
            text = value if isinstance(value, str) else json.dumps(value)
            assert self.kept.setdefault(expected[1:], text) == text
        elif isinstance(expected, str) and expected.endswith("..."):
            assert value.startswith(expected[:-3]), value
        elif isinstance(expected, dict):
            assert isinstance(value, dict)
            assert set(expected) <= set(value) if part else set(expected) == set(value), value
            for name, expected_item in expected.items():
                self.compare(value[name], expected_item, part=part)
        elif isinstance(expected, list):
            assert isinstance(value, list)
            assert len(value) == len(expected), value
            for item, expected_item in zip(value, expected, strict=True):
                self.compare(item, expected_item, part=part)
        else:
            assert value == expected, (value, expected)


class RestPlayer(RequestPlayer):
    """Plays the scenarios of a fake in process; no request may be a bug."""

    def __init__(self, fake: Any) -> None:
        super().__init__()
        self._fake = fake

    @property
    def fake(self) -> Any:
        return self._fake

    def authorized(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the headers of a request with those that authenticate it."""
        if "Authorization" in dict(headers):
            return headers
        return [("Authorization", self.fake.headers["Authorization"]), *headers]

    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Fetched:
        headers = self.authorized(headers)
        raw = path.encode().decode("latin-1")
        answer = self.fake._app.respond(Request(method, raw, headers, body))
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        assert not [
            violation for violation in self.fake._context.violations if violation.kind == "bug"
        ]
        headers = [*answer.headers, ("Content-Type", answer.content_type or "")]
        return Fetched(answer.status, dict(headers), answer.body)


def sections(file: Path) -> dict[str, list[str]]:
    """Return the lines of a text file, without empty ones, by the headings ``== NAME`` above them."""
    by_name: dict[str, list[str]] = {}
    for name, *lines in map(str.splitlines, re.split(r"(?m)^== ", file.read_text("utf-8"))[1:]):
        assert name not in by_name, f"{file.name} has `== {name}` twice: put its lines below one"
        by_name[name] = [line for line in lines if line]
    return by_name


def rows(file: Path, heading: str, *, raw: bool = False) -> list[tuple[str, str]]:
    r"""Return the lines ``<text> => <result>`` below a heading.

    ``{x*9}`` repeats a part of a text, and ``\n``, ``\x00`` and ``\uff11`` are characters, unless the
    texts are raw. Lines that begin with ``# `` are comments.
    """
    return _rows(sections(file)[heading], raw)


def tables(file: Path, *, raw: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of a file by their headings."""
    return {heading: _rows(lines, raw) for heading, lines in sections(file).items()}


def _rows(lines: list[str], raw: bool) -> list[tuple[str, str]]:
    pairs = []
    for line in lines:
        if not line.startswith("# "):
            text, _, result = line.partition(" =>")
            if not raw:
                text = re.sub(
                    r"\\(n|x..|u....)", lambda char: ast.literal_eval(f'"{char[0]}"'), text
                )
                text = repeated(text)
            pairs.append((text, result.lstrip()))
    return pairs


def golden(file: Path, text: str | list[str], heading: str = "") -> None:
    """Compare a text with a file, or lines with those below a heading of a file that has several.

    A heading without lines is left out. `FAKECLOUD_WRITE_GOLDEN=1` (without `-n`) writes what differs.
    """
    parts = sections(file) if heading and file.exists() else {}
    if heading:
        expected = "\n".join(parts.get(heading, []))
    else:
        expected = file.read_text("utf-8") if file.exists() else ""
    actual = text if isinstance(text, str) else "\n".join(text)
    if actual == expected:
        return
    if os.environ.get("FAKECLOUD_WRITE_GOLDEN"):
        parts[heading] = actual.splitlines()
        texts = ["\n".join([f"== {name}", *lines, ""]) for name, lines in parts.items() if lines]
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(texts) if heading else actual, encoding="utf-8")
        return
    differences = ndiff(expected.splitlines(), actual.splitlines())
    below = f", below `== {heading}`" if heading else ""
    pytest.fail(
        f"{_shown(file)}{below} has other lines. "
        "If the new ones are right, add those with `+` and remove those with `-`, or run the test "
        "with FAKECLOUD_WRITE_GOLDEN=1:\n" + "\n".join(differences),
        pytrace=False,
    )


def complete(file: Path, missing: Iterable[str], excuses: str = "") -> None:
    """Fail with the lines that a file has to have, unless there are none. ``excuses`` names the list
    that has a reason for each line that is left out.
    """
    if lines := list(missing):
        instead = f", or a reason to {excuses}" if excuses else ""
        pytest.fail(f"add to {_shown(file)}{instead}:\n" + "\n".join(lines), pytrace=False)


def _shown(file: Path) -> str:
    return str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)


def alternatives(text: str) -> list[str]:
    """Return a line for each combination of the alternatives in braces."""
    pieces = _ALTERNATIVES.split(text)
    choices = [piece.split("|") if at % 2 else [piece] for at, piece in enumerate(pieces)]
    return ["".join(choice) for choice in product(*choices)]


def repeated(text: str) -> str:
    """Return a line with its repeated texts (`{x*9}`)."""
    return re.sub(r"\{([^{}|*]+)\*(\d+)\}", lambda match: match[1] * int(match[2]), text)


def parts(line: str, prefix: str = "") -> tuple[str, list[tuple[str, str]], bytes]:
    """Return the target, the headers and the body of a line."""
    head, _, body = line.partition(" < ")
    target, *headers = head.split(" | ")
    pairs = []
    for header in headers:
        name, _, value = header.partition(":")
        pairs.append((prefix + name if name[0] == "-" else name, value.strip()))
    return target, pairs, ast.literal_eval(body) if body.startswith('b"') else body.encode()
