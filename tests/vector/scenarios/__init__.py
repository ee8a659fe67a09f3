"""HTTP requests to an index with their results, as text, in the notation of `tests/notations.py`.

A response of 200 is the JSON of `result`. An index has two dimensions unless its settings say otherwise.
`/query` without a method is a POST, and `vectors` lists the ids in a namespace. After each error, the
namespaces and their ids are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.vector.fake import VectorIndex

from ...notations import Fetched, RestPlayer

FOLDER = Path(__file__).parent


@dataclass
class Result(Fetched):
    """A response of an index."""

    def json(self) -> Any:
        payload = super().json()
        if self.status == 200:
            assert list(payload) == ["result"]
            return payload["result"]
        assert set(payload) == {"error", "status"}
        assert payload["status"] == self.status
        return payload


class _Player(RestPlayer):
    def line(self, text: str, below: list[str]) -> None:
        if text[0] == "/":
            text = f"POST {text}"
        if text.startswith("vectors"):
            line, _, wanted = text.partition(" => ")
            ids = [record["id"] for record in self.fake.vectors(line[8:])]
            assert ids == wanted.replace("none", "").split(), ids
        elif text.startswith("pending"):
            assert sorted(change["id"] for change in self.fake.pending()) == text.split()[2:]
        elif text in ("hold", "release"):
            getattr(self.fake._engine, text)()
        else:
            super().line(text, below)

    def ids(self) -> dict[str, list[str]]:
        spaces = self.fake.snapshot().data.namespaces
        return {name: [record.id for _, record in space.scan()] for name, space in spaces.items()}

    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Result:
        before = self.ids()
        answer = super().send(method, path, headers, body)
        if answer.status != 200:
            assert answer.headers["Content-Type"] == "application/json"
            assert self.ids() == before
        return Result(answer.status, answer.headers, answer.body)


def play(settings: dict[str, Any], lines: list[str]) -> None:
    """Send the requests of a scenario, and check their results."""
    context = Context.alone(now="2026-01-01T00:00:00Z")
    with VectorIndex(context, **{"dimension": 2, **settings}) as index:
        _Player(index).play(lines)
