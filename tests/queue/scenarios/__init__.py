r"""HTTP requests to a queue with their responses and deliveries, as text.

`POST /v2/publish/DEST | -Retries: 0 < hello => 200 {"messageId": "$m", "url": "DEST"}` is a request
with a header, `Upstash-Retries`, with a body and with its response. All three are optional; the status
is 2xx if none is given. A body may be a Python literal, `b"\xff"`. A line that begins with `<` sends
the last request with another body, and `3x` before a request sends it three times.

A response is the whole JSON, `has <JSON>` for a part of it (of a list of objects, a part of each), or
`lacks <keys>`. After a status it may also be the text of the error, or `has` and a part of this text.
A string that ends in `...` matches by its beginning. The first `$name` in a response keeps a value,
which `$name` is from then on. `NOW+1000` is a time in Unix milliseconds, counted from the start.

`@ 5s` advances the clock, `@ due` delivers what is due, `@ idle` delivers everything. Indented lines
below it are all deliveries since the last such line, `<seconds> <METHOD> <URL> | X-A: 1 < body`, of
which a header without a value is absent, and a body may be `has <JSON>` or `lacks <keys>`; the line
`none` means that nothing was delivered. The body of a delivery to a workflow is the list of its
steps, `steps first, second`. `! DEST 500 after 10 | X-A: 1 < body` makes a destination answer with a
status, after ten seconds; `*` are all destinations, and `500 200` answers with each status in turn.
`states $m => CREATED ACTIVE` are the states in the log of a message, `ids /v2/dlq => $a $b` the ids
of the messages in a listing, and `runs <query> => s r` the ids of workflow runs. `save` and `restore`
make and restore a snapshot. `start r` and `run r` send the headers of the first and of a later step
of a run at `APP`, and `flow rate=1` the headers of flow control with the key `k`. `{x*9}` repeats a
text.

Each scenario (`== <name> <settings>`) has a queue of its own, with settings as JSON. The lines before
the first scenario are played before each of them. A line that begins with `#` is a comment.

In `headers.txt`, `publish` is a request to DEST whose settings (`-Retries: 0`) the tests also spell in
other ways. KIND is Callback or Failure-Callback, and STATUS the status that causes it. The request of
a `refused` line is rejected, with the given status and a part of the error.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from pathlib import Path
from typing import Any

from pytest_fakecloud.queue.delivery.replies import DeliveredRequest, Response

from ..scene import CALLBACK, DEST, FAILURE, NOW_MS, Fetched, Scene

FOLDER = Path(__file__).parent
APP = "https://app.example.com/flow"
OTHER = "https://other.example.org:8443/path/x?q=1"
URLS = {"APP": APP, "DEST": DEST, "OTHER": OTHER, "CALLBACK": CALLBACK, "FAILURE": FAILURE}
FEATURES = "LazyFetch,InitialBody,WF_TriggerOnConfig"
_REPLY = re.compile(r"(\d{3})?\s*(has |lacks )?(.*)")
_ANSWER = re.compile(r"(\S+) ([\d ]+?)(?: after (\d+))?")


def scenarios(file: str) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Return the settings and the lines of each scenario of a file, by its name."""
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    shared, *texts = (FOLDER / f"{file}.txt").read_text(encoding="utf-8").split("\n== ")
    for text in texts:
        head, *lines = text.splitlines()
        lines = [line for line in shared.splitlines() + lines if line and line[0] != "#"]
        name, brace, settings = head.partition(" {")
        assert name not in found, f"{file}.txt has two scenarios {name!r}"
        found[name] = (json.loads(brace + settings or "{}"), lines)
    return found


def play(settings: dict[str, Any], lines: list[str]) -> None:
    """Send the requests of a scenario, and check the responses and deliveries."""
    with Scene(**settings) as scene:
        player = _Player(scene)
        while lines:
            more = next((at for at, one in enumerate(lines[1:], 1) if one[0] != " "), len(lines))
            try:
                player.line(lines[0], lines[1:more])
            except AssertionError as error:
                raise AssertionError(f"{lines[0]}\n{error}") from error
            lines = lines[more:]


class _Player:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.kept: dict[str, str] = {}
        self.request = ""
        self.seen = 0
        self.answers: dict[str, list[Response]] = {"*": [Response()]}
        scene.answer = self.answer

    def answer(self, request: DeliveredRequest) -> Response:
        replies = self.answers.get(request.url, self.answers["*"])
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def line(self, text: str, below: list[str]) -> None:
        line, _, reply = self.filled(text).partition(" => ")
        if line[0] == "@":
            self.move(line[2:], [self.filled(one.strip()) for one in below])
        elif line[0] == "!":
            target, headers, body = parts(line[2:])
            found = _ANSWER.fullmatch(target)
            assert found is not None
            url, statuses, seconds = found.groups()
            self.answers[url] = [
                Response(int(status), body, headers, int(seconds or 0))
                for status in statuses.split()
            ]
        elif line.startswith("states "):
            assert self.scene.states(line.split()[1]) == reply.split()
        elif line.startswith(("ids ", "runs")):
            path = line[4:] if line[0] == "i" else f"/v2/workflows/events?{line[5:]}"
            rows = next(iter(self.scene.get(path).values()))
            ids = [one["messageId" if line[0] == "i" else "workflowRunId"] for one in rows]
            assert ids == ([] if reply == "none" else reply.split())
        elif line == "save":
            self.saved = self.scene.queue.snapshot()
        elif line == "restore":
            self.scene.queue.restore(self.saved)
        else:
            count, times, rest = line.partition("x ")
            if not (times and count.isdecimal()):
                count, rest = "1", line
            if rest[0] == "<":
                rest = f"{self.request} {rest}"
            self.request = rest.partition(" < ")[0]
            target, headers, body = parts(rest)
            method, path = target.split(" ", 1)
            for _ in range(int(count)):
                answer = self.scene.request(method, path.replace(" ", "%20"), headers, body)
                self.check(answer, reply)

    def filled(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda found: self.kept.get(found[1], found[0]), expanded(text))

    def move(self, how: str, expected: list[str]) -> None:
        queue = self.scene.queue
        if how == "due":
            queue.deliver_due()
        elif how == "idle":
            queue.run_until_idle()
        else:
            queue.clock.advance(how)
        came = list(zip(self.scene.times, self.scene.came, strict=True))[self.seen :]
        self.seen += len(came)
        if expected:
            wanted = [] if expected == ["none"] else expected
            assert len(came) == len(wanted), [(at, one.method, one.url) for at, one in came]
            for (at, request), text in zip(came, wanted, strict=True):
                self.check_delivery(at, request, text)

    def check(self, answer: Fetched, reply: str) -> None:
        status, how, expected = _REPLY.fullmatch(reply).groups()  # type: ignore[union-attr]
        if status is None:
            assert 200 <= answer.status <= 299, answer
        else:
            assert answer.status == int(status), answer
        if not expected:
            return
        if re.match(r"[A-Za-z]", expected):
            error = answer.error
            assert expected in error if how else expected == error, answer
            return
        if how == "lacks ":
            assert not set(json.loads(expected)) & set(answer.json()), answer
        elif answer.body or expected != '""':
            wanted = expected if expected[0] == "$" else json.loads(expected)
            self.compare(answer.json(), wanted, part=bool(how))

    def compare(self, value: Any, expected: Any, *, part: bool) -> None:
        if isinstance(expected, str) and re.fullmatch(r"\$\w+", expected):
            text = value if isinstance(value, str) else json.dumps(value)
            assert self.kept.setdefault(expected[1:], text) == text
        elif isinstance(expected, str) and expected.endswith("..."):
            assert value.startswith(expected[:-3]), value
        elif isinstance(expected, dict):
            assert isinstance(value, dict)
            assert set(expected) <= set(value) if part else set(expected) == set(value), value
            for name, one in expected.items():
                self.compare(value[name], one, part=part)
        elif isinstance(expected, list):
            assert isinstance(value, list)
            assert len(value) == len(expected), value
            for each, one in zip(value, expected, strict=True):
                self.compare(each, one, part=part)
        else:
            assert value == expected, (value, expected)

    def check_delivery(self, at: float, request: DeliveredRequest, text: str) -> None:
        target, headers, body = parts(text)
        seconds, method, url = target.split()
        assert (round(at, 3), request.method, request.url) == (float(seconds), method, url)
        for name, value in headers:
            assert ", ".join(request.headers.getlist(name)) == value, (name, request.headers)
        if body.startswith(b"steps"):
            assert all(set(one) == {"messageId", "body", "callType"} for one in request.json())
            assert {one["callType"] for one in request.json()} == {"step"}
            steps = [base64.b64decode(one["body"]) for one in request.json()]
            assert b", ".join(steps) == body[6:]
        elif body.startswith(b"has "):
            self.compare(request.json(), json.loads(body[4:]), part=True)
        elif body.startswith(b"lacks "):
            assert not set(json.loads(body[6:])) & set(request.json())
        elif " < " in text:
            assert request.body == body


def expanded(text: str) -> str:
    """Return a line with its URLs, repeated texts and times."""
    text = re.sub(rf"\b({'|'.join(URLS)})\b", lambda found: URLS[found[0]], text)
    text = re.sub(r"\{([^{}|*]+)\*(\d+)\}", lambda found: found[1] * int(found[2]), text)
    return re.sub(r"NOW(\+\d+)?", lambda found: str(NOW_MS + int(found[1] or 0)), text)


def parts(line: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return the target, the headers and the body of a line."""
    head, _, body = line.partition(" < ")
    target, *headers = head.split(" | ")
    pairs = []
    for header in headers:
        if run := re.fullmatch(r"(run|start) (\S+)", header):
            init = "true" if run[1] == "start" else "false"
            own = {"RunId": run[2], "Init": init, "Url": APP}
            pairs += [(f"Upstash-Workflow-{name}", value) for name, value in own.items()]
            pairs.append(("Upstash-Feature-Set", FEATURES))
            continue
        if header.startswith("flow "):
            pairs += [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", header[5:])]
            continue
        name, _, value = header.partition(":")
        pairs.append((f"Upstash{name}" if name[0] == "-" else name, value.strip()))
    return target, pairs, ast.literal_eval(body) if body.startswith('b"') else body.encode()
