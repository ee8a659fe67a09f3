r"""Requests to the control API with their responses, as text, in the notation of `tests/notations.py`.

A server has all four services and a frozen clock; the settings of a scenario are those of services. A
path is one below `/__control__`, and the text of an error is its message. `kv SET k v => "OK"` is a
command that a client of the key-value server sends, split like a shell does. `broker.produce ["orders",
"x"] {"key": "k"} => 200 {"offset": 0}` is `POST /call` with positional and keyword arguments; the
response is the value, or `raise <class>: <text>` for an error. `lists kv_server/lists/keys?limit=2 => a
b` are the ids of the items in a list, or `none`.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_fakecloud import Cloud
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.standalone.api import ControlApp

from ...notations import Fetched, RequestPlayer, RestPlayer

FOLDER = Path(__file__).parent
NOW = "2026-01-01T00:00:00Z"
FIXTURES = {"kv": "kv_server", "vector": "vector_index", "broker": "broker", "queue": "queue"}
_CALL = re.compile(r"(\w*)\.([\w.]+)( \[.*?\](?= \{|$))?( \{.*\})?")


class Reply(Fetched):
    """A response of the control API."""

    @property
    def error(self) -> str:
        return str(self.json()["error"]["message"])


class ControlPlayer(RequestPlayer):
    """Plays requests to the control API of a cloud in this process."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self.cloud = cloud
        self.app = ControlApp(cloud, "token")

    @property
    def fake(self) -> Any:
        return self.cloud

    def line(self, text: str, below: list[str]) -> None:
        line, _, reply = self.filled(text).partition(" => ")
        if line.startswith("kv "):
            server = RestPlayer(self.cloud.fakes()[0])
            body = json.dumps(shlex.split(line[3:])).encode()
            response = server.send("POST", "/", [], body).json()
            if reply:
                self.compare(response.get("result", response), json.loads(reply), part=False)
        elif line.startswith("lists "):
            items = self.get(f"/fakes/{line[6:]}")["items"]
            assert [item["id"] for item in items] == shlex.split(reply.replace("none", "")), items
        elif call := _CALL.fullmatch(line):
            self.call(*call.groups(), reply)
        else:
            super().line(text, below)

    def get(self, path: str) -> Any:
        answer = self.send("GET", path.replace(" ", "%20"), [], b"")
        assert answer.status == 200, answer
        return answer.json()

    def call(self, fake: str, name: str, args: str, kwargs: str, reply: str) -> None:
        """Call a method over the control API, and compare its value or error."""
        arguments = {"args": json.loads(args or "[]"), "kwargs": json.loads(kwargs or "{}")}
        body = {"object": fake or None, "name": name, **{k: v for k, v in arguments.items() if v}}
        answer = self.send("POST", "/call", [], json.dumps(body).encode())
        if reply[:1] != "4":
            assert answer.status == 200, answer
            response = answer.json()
            if reply.startswith("raise "):
                error = response["raise"]
                self.compare(f"{error['type']}: {error['text']}", reply[6:], part=False)
                return
            answer = Reply(200, {}, json.dumps(response["value"]).encode())
        self.check(answer, reply)

    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Reply:
        sent = [("Host", "127.0.0.1"), ("Authorization", "Bearer token"), *headers]
        raw = quote(path, safe="/?&=%:+,*'()\"[]{}<>!$-._~").encode().decode("latin-1")
        answer = self.app.respond(Request(method, f"/__control__{raw}", sent, body))
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        assert not [violation for violation in self.cloud.violations() if violation.kind == "bug"]
        return Reply(answer.status, dict(answer.headers), answer.body)


def play(settings: dict[str, Any], lines: list[str]) -> None:
    """Send the requests of a scenario, and check their responses."""
    with Cloud(seed=1, now=NOW, delivery="driven") as cloud:
        for service, fixture in FIXTURES.items():
            cloud._start(fixture, settings.get(service, {}))
        ControlPlayer(cloud).play(lines)
