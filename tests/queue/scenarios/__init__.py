r"""HTTP requests to a queue with their responses and deliveries, as text.

The notation of requests and responses is that of `tests/notations.py`; a header that begins with `-` is
one of `Upstash`. `NOW+1000` is a time in Unix milliseconds, counted from the start.

`@ 5s` advances the clock, `@ due` delivers what is due, `@ idle` delivers everything. Indented lines
below it are all deliveries since the last such line, `<seconds> <METHOD> <URL> | X-A: 1 < body`, of
which a header without a value is absent, `$name` keeps a value, and a body may be `has <JSON>` or
`lacks <keys>`; the line `none` means that nothing was delivered. The body of a delivery to a workflow
is the list of its steps, `steps first, second`. `! DEST 500 after 10 | X-A: 1 < body` makes a
destination answer with a status, after ten seconds; `*` are all destinations, and `500 200` answers
with each status in turn. `states $m => CREATED ACTIVE` are the states in the log of a message, `waits
$m => <reason>` is why a message without a due time waits, and `timeline $m => <text>` a part of its
timeline. `violations => [{"kind": ...}]` are the strict-mode violations since the last such line. `ids
/v2/dlq => $a $b` are the ids of the messages in a listing, and `runs <query> => s r` the ids of
workflow runs. `start r` and `run r` send the headers of the first and of a later step of a run at
`APP`, and `flow rate=1` the headers of flow control with the key `k`.

In `headers.txt`, `publish` is a request to DEST whose settings (`-Retries: 0`) the tests also spell in
other ways. KIND is Callback or Failure-Callback, and STATUS the status that causes it. The request of
a `refused` line is rejected, with the given status and a part of the error.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from pytest_fakecloud.inspect.data import state_of
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, Response
from pytest_fakecloud.queue.rest.app import PUBLISHING, PUBLISHING_OR_SCHEDULING
from pytest_fakecloud.queue.saved import load_saved, saved

from ...notations import Fetched, RequestPlayer, repeated
from ...notations import parts as plain_parts
from ...notations import scenarios as scenarios_of
from ..scene import CALLBACK, DEST, FAILURE, NOW_MS, Scene

FOLDER = Path(__file__).parent
APP = "https://app.example.com/flow"
OTHER = "https://other.example.org:8443/path/x?q=1"
URLS = {"APP": APP, "DEST": DEST, "OTHER": OTHER, "CALLBACK": CALLBACK, "FAILURE": FAILURE}
FEATURES = "LazyFetch,InitialBody,WF_TriggerOnConfig"
NOT_PUBLISHING = {
    "trigger_workflow", "trigger_workflows", "wait_for_event", "retry_dead_letter", "retry_dead_letters",
}  # fmt: skip
"""Routes that respond with the IDs of new messages that no client sends: of runs and retries."""
_ANSWER = re.compile(r"(\S+) ([\d ]+?)(?: after (\d+))?")


def scenarios(file: str) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Return the settings and the lines of each scenario of a file, by its name."""
    return scenarios_of(FOLDER / f"{file}.txt")


def play(settings: dict[str, Any], lines: list[str]) -> None:
    """Send the requests of a scenario, and check the responses and deliveries. Then check that
    another queue has the same data if it loads what a file would keep.
    """
    with Scene(**settings) as scene:
        _Player(scene).play(lines)
        content = json.loads(json.dumps(saved(scene.queue)))
        with Scene(**settings) as other:
            load_saved(other.queue, content, "saved")
            assert saved(other.queue) == content
            assert state_of(other.queue) == state_of(scene.queue)


class _Player(RequestPlayer):
    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.seen = 0
        self.answers: dict[str, list[Response]] = {"*": [Response()]}
        scene.answer = self.answer

    @property
    def fake(self) -> Any:
        return self.scene.queue

    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Fetched:
        engine, table, bare_path = self.fake._engine, self.fake._app.table, path.partition("?")[0]
        forgets = engine.data.settings.history_us is not None  # any request, what is too old
        if forgets or table.writes(method, bare_path):
            messages, schedules = set(engine.data.messages), set(engine.schedules.by_id)
            fetched = self.scene.request(method, path, headers, body)
            route = table.match(method, bare_path).route
            if route is not None and route.name not in PUBLISHING_OR_SCHEDULING:
                new_schedules = engine.schedules.by_id.keys() - schedules
                assert not new_schedules, (
                    "this creates a schedule: set `schedules=True` in its route"
                )
            if route is not None and route.name not in PUBLISHING | NOT_PUBLISHING:
                is_answer = (
                    b'"messageId"' in fetched.body and engine.data.messages.keys() - messages
                )
                assert not is_answer, (
                    "this sends a message: set `publishes=True` in its route (or, if it is no message "
                    "of the client, add its name to NOT_PUBLISHING of tests/queue/scenarios/__init__.py)"
                )
            return fetched
        before = self.data()
        fetched = self.scene.request(method, path, headers, body)
        assert self.data() == before, "this changes data: set `changes=True` in its route"
        return fetched

    def data(self) -> tuple[Any, Any]:
        """Return the data without what any request may change: it counts as a request, and begins the
        periods of flow-control keys and drops the dead letters whose time has passed.
        """
        engine = self.fake._engine
        for flow_key in engine.flow_control.by_name.values():
            flow_key.roll(engine.clock.now_us())
        state = state_of(self.fake)  # drops dead letters
        content = saved(self.fake)
        del content["data"]["usage"]
        return state, content

    def answer(self, request: DeliveredRequest) -> Response:
        replies = self.answers.get(request.url, self.answers["*"])
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def line(self, text: str, below: list[str]) -> None:
        line, _, reply = self.filled(text).partition(" => ")
        if line[0] == "!":
            target, headers, body = parts(line[2:])
            actual = _ANSWER.fullmatch(target)
            assert actual is not None
            url, statuses, seconds = actual.groups()
            self.answers[url] = [
                Response(int(status), body, headers, int(seconds or 0))
                for status in statuses.split()
            ]
        elif line.startswith("states "):
            assert self.scene.states(line.split()[1]) == reply.split()
        elif line.startswith("waits "):
            record = self.scene.queue.message(line[6:])._record
            assert (record.due_us, record.wait_reason) == (None, reply)
        elif line == "violations":
            violations = self.scene.violations
            actual = [{"kind": violation.kind, **violation.facts} for violation in violations]
            violations.clear()
            self.compare(actual, json.loads(reply), part=False)
        elif line.startswith("timeline "):
            assert reply in self.scene.queue.message(line[9:]).timeline
        elif line.startswith(("ids ", "runs")):
            path = line[4:] if line[0] == "i" else f"/v2/workflows/events?{line[5:]}"
            rows = next(iter(self.scene.get(path).values()))
            ids = [row["messageId" if line[0] == "i" else "workflowRunId"] for row in rows]
            assert ids == ([] if reply == "none" else reply.split())
        else:
            super().line(text, below)

    def parts(self, line: str) -> tuple[str, list[tuple[str, str]], bytes]:
        return parts(line)

    def filled(self, text: str) -> str:
        return super().filled(expanded(text))

    def move(self, how: str, below: list[str]) -> None:
        expected = [self.filled(line.strip()) for line in below]
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
            assert len(came) == len(wanted), [
                (at, delivered.method, delivered.url) for at, delivered in came
            ]
            for (at, request), text in zip(came, wanted, strict=True):
                self.check_delivery(at, request, text)

    def check_delivery(self, at: float, request: DeliveredRequest, text: str) -> None:
        target, headers, body = parts(text)
        seconds, method, url = target.split()
        assert (round(at, 3), request.method, request.url) == (float(seconds), method, url)
        for name, value in headers:
            self.compare(", ".join(request.headers.getlist(name)), value, part=False)
        if body.startswith(b"steps"):
            assert all(set(step) == {"messageId", "body", "callType"} for step in request.json())
            assert {step["callType"] for step in request.json()} == {"step"}
            steps = [base64.b64decode(step["body"]) for step in request.json()]
            assert b", ".join(steps) == body[6:]
        elif body.startswith(b"has "):
            self.compare(request.json(), json.loads(body[4:]), part=True)
        elif body.startswith(b"lacks "):
            assert not set(json.loads(body[6:])) & set(request.json())
        elif " < " in text:
            assert request.body == body


def expanded(text: str) -> str:
    """Return a line with its URLs, repeated texts and times."""
    text = repeated(re.sub(rf"\b({'|'.join(URLS)})\b", lambda match: URLS[match[0]], text))
    return re.sub(r"NOW(\+\d+)?", lambda match: str(NOW_MS + int(match[1] or 0)), text)


def parts(line: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return the target, the headers and the body of a line."""
    target, pairs, body = plain_parts(line, "Upstash")
    headers: list[tuple[str, str]] = []
    for name, value in pairs:
        word, _, argument = name.partition(" ")
        if word in ("run", "start") and argument:
            own = {"RunId": argument, "Init": "true" if word == "start" else "false", "Url": APP}
            headers += [(f"Upstash-Workflow-{name}", value) for name, value in own.items()]
            features = FEATURES if word == "start" else f"{FEATURES},WF_StepConfig"
            headers.append(("Upstash-Feature-Set", features))
        elif word == "flow" and argument:
            headers += [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", argument)]
        else:
            headers.append((name, value))
    return target, headers, body
