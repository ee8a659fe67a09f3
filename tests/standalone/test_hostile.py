"""Hostile input to the control API gets an error response, and the server stays up and small."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.base import start_over
from pytest_fakecloud.core.violations import Violations
from pytest_fakecloud.http.messages import Answer, Request, Stream
from pytest_fakecloud.recordings.archives import archive
from pytest_fakecloud.standalone.addresses import Hosts
from pytest_fakecloud.standalone.api import FILES, PREFIX, ControlApp
from pytest_fakecloud.standalone.control import data
from pytest_fakecloud.standalone.control.shapes import BODIES, body_schema

from ..robustness import grammar
from ..robustness.grammar import bodies, values
from .conftest import Serve, Server, ask, fetch, message

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def app() -> Iterator[ControlApp]:
    with Cloud(seed=1, now=NOW, delivery="driven") as cloud:
        for fixture in ("kv_server", "vector_index", "broker", "queue"):
            getattr(cloud, fixture)()
        yield ControlApp(cloud, "token")


# -- input of any kind -----------------------------------------------------------------------------

VALUES = values(
    ["running", "frozen", "kv_server", "queue", "advance", "move_to", "drop", "respond", "delay",
     "sequence", "random"]
)  # fmt: skip
_NAMES = {name for route in BODIES for name in body_schema(route)["properties"]}
FIELDS = st.sampled_from(sorted({"command", "token", "port", "when"} | _NAMES))
METHODS = [
    "execute", "value", "load", "vectors", "publish", "produce", "attempts", "snapshot", "restore",
    "allow", "keys", "message", "schedule", "cancel", "assert_called",
]  # fmt: skip
WELL_MEANT = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["freeze", "resume", "advance", "move_to", "advance_to_next"]),
        "by": VALUES,
        "to": VALUES,
        "kind": st.sampled_from(["respond", "delay", "drop", "hang", "random", "sequence", "down"]),
        "args": st.lists(VALUES, max_size=3),
        "fixture": st.sampled_from(["kv_server", "vector_index", "broker", "queue", "nobody"]),
        "settings": st.dictionaries(
            st.sampled_from(["name", "port", "token", "dimension", "topics", "limits"]),
            VALUES,
            max_size=2,
        ),
        "object": st.sampled_from([None, "kv_server", "queue", "vector_index", "broker", 1, 2]),
        "name": st.sampled_from(METHODS),
        "kwargs": st.dictionaries(FIELDS, VALUES, max_size=2),
        "times": VALUES,
    },
)
BODIES = bodies(VALUES, st.dictionaries(FIELDS, VALUES, max_size=4), WELL_MEANT)
SEGMENTS = st.sampled_from(["kv_server", "queue", "vector_index", *grammar.SEGMENTS])


@st.composite
def requests(draw: Callable[[Any], Any]) -> tuple[str, str, bytes]:
    """A request to some endpoint, or to none."""
    route = draw(st.sampled_from(ROUTES))
    path = re.sub(r"{(\w+)\*?}", lambda _: draw(SEGMENTS), route.pattern)
    query = draw(st.sampled_from(grammar.QUERIES))
    method = draw(st.sampled_from([*route.methods.split(), "POST", "PATCH"]))
    return method, path + query, draw(BODIES)


with Cloud(seed=0) as _cloud:
    ROUTES = ControlApp(_cloud, "x").table.routes


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=1, max_size=4))
@pytest.mark.slow
def test_every_request_is_answered_in_words(
    app: ControlApp, many: list[tuple[str, str, bytes]]
) -> None:
    cloud = app.cloud
    for method, target, body in many:
        # The path as the bytes that a client would send.
        raw = target.encode().decode("latin-1")
        headers = [("Host", "localhost:8000"), ("Authorization", "Bearer token")]
        answer = app.respond(Request(method, raw, headers, body))
        if isinstance(answer, Stream):
            assert answer.on_close is not None
            answer.on_close()
            continue
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        bugs = [violation.text for violation in cloud.violations() if violation.kind == "bug"]
        assert answer.status < 500, (method, target, body, bugs)
        assert bugs == []
        if answer.status >= 400:
            assert json.loads(answer.body)["error"]["message"]
    # Back to the beginning, with the four that are always there.
    for fake in cloud.fakes()[4:]:
        fake.close()
    for fixture in ("kv_server", "vector_index", "broker", "queue"):
        if fixture not in [fake.name for fake in cloud.fakes()]:
            getattr(cloud, fixture)()
    start_over(cloud)
    assert ask(app, "GET", "/state")[0] == 200


def test_a_token_of_any_bytes_is_only_wrong(app: ControlApp) -> None:
    for header in (
        "Bearer \xfc",
        "Bearer \ud800",
        "Bearer",
        "",
        "Basic x",
        "Bearer " + "x" * 10**6,
    ):
        headers = [("Host", "localhost"), ("Authorization", header)]
        answer = app.respond(Request("GET", f"{PREFIX}/state", headers))
        assert isinstance(answer, Answer)
        assert answer.status == 401


def test_a_place_that_cannot_be_had_is_refused(app: ControlApp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for place in ({"port": taken.getsockname()[1]}, {"host": "192.0.2.1"}):
            body = {"fixture": "kv_server", "settings": place}
            assert message(ask(app, "POST", "/fakes", body))


OPEN = {"host": "0.0.0.0", "token": "local-kv-token"}


@pytest.mark.parametrize("settings", [OPEN, {"host": "0.0.0.0"}, {"host": "::"}, {"host": ""}])
def test_the_control_api_opens_no_fake_to_a_network(
    settings: dict[str, Any], app: ControlApp, server: Server
) -> None:
    """Only who starts the server decides that, with ``serve --host``."""
    said = message(ask(app, "POST", "/fakes", {"fixture": "kv_server", "settings": settings}))
    assert "reachable from other machines: start the server with --host" in said
    status, answer = server.ask("POST", "/clouds", {"services": {"kv": settings}})
    assert (status, "reachable from other machines" in str(answer)) == (422, True)


def test_a_server_of_the_network_opens_no_fake_with_public_credentials(serve: Serve) -> None:
    server = serve("--random", "--host", "0.0.0.0")
    body = {"fixture": "kv_server", "settings": OPEN}
    status, answer = server.ask("POST", "/fakes", body)
    assert (status, "public credentials" in str(answer)) == (422, True)
    status, answer = server.ask("POST", "/clouds", {"services": {"kv": OPEN}})
    assert (status, "public credentials" in str(answer)) == (422, True)


def test_a_fake_with_public_credentials_is_guarded_whoever_starts_it(server: Server) -> None:
    public = {"token": "local-kv-token"}
    _, fake = server.ask(
        "POST", "/fakes", {"fixture": "kv_server", "settings": public | {"name": "more"}}
    )
    _, cloud = server.ask("POST", "/clouds", {"services": {"kv": public}})
    urls = [fake["url"], cloud["env"]["UPSTASH_REDIS_REST_URL"]]
    for url in urls:
        page = {"Sec-Fetch-Site": "cross-site"}
        target = f"{url}/set/a/b?_token=local-kv-token"
        assert fetch("GET", target).status == 200
        assert fetch("GET", target, headers=page).status == 403


# -- the end of time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        {"action": "advance", "by": "100d"},
        {"action": "advance", "by": {"$": "timedelta", "v": 1e9}},
        {"action": "move_to", "to": "9999-12-31T23:59:59-01:00"},
        {"action": "move_to", "to": "+10000-01-01T00:00:00Z"},
    ],
)
def test_a_move_beyond_the_last_instant_is_refused(move: dict[str, Any]) -> None:
    with Cloud(seed=1, now="9999-12-31T00:00:00Z", delivery="driven") as cloud:
        app = ControlApp(cloud, "token")
        assert message(ask(app, "POST", "/clock", move), 400)
        assert ask(app, "GET", "/state")[1]["clock"]["now"] == "9999-12-31T00:00:00+00:00"


def test_a_clock_that_runs_over_the_last_instant_is_told_as_that() -> None:
    with Cloud(seed=1, now=NOW, delivery="driven") as cloud:
        kv = cloud.kv_server()
        app = ControlApp(cloud, "token")
        fetch("POST", kv.url, json=["PING"], headers=kv.headers)
        # The test needs the time that a running clock has just after the last allowed move.
        late = 253_402_300_800_000_000
        cloud._timekeeper._frozen_us = late
        cloud._timekeeper.call_at(late + 10**12, lambda due_us: None)
        fetch("POST", kv.url, json=["PING"], headers=kv.headers)
        for path in ("/state", "/clock", "/journal", "/violations", "/fakes/kv_server/view"):
            status, answer = ask(app, "GET", path)
            assert status == 200, answer
        last = "9999-12-31T23:59:59.999999+00:00"
        clock = ask(app, "GET", "/clock")[1]
        assert (clock["now"], clock["next_due"]) == (last, None)
        assert ask(app, "POST", "/clock", {"action": "advance", "by": "1s"})[0] == 400
        assert archive(cloud)["log"]["entries"][-1]["startedDateTime"] == last
        assert ask(app, "POST", "/begin", {"now": NOW})[0] == 200


# -- small for weeks -------------------------------------------------------------------------------


def test_the_control_api_keeps_nothing_of_its_own_requests(app: ControlApp) -> None:
    for _ in range(50):
        ask(app, "GET", "/state")
        ask(app, "GET", "/journal")
        ask(app, "POST", "/nothing/here", {"x": "y" * 1000})
    assert app.recorder.entries == []
    assert app.violations == []


def test_the_violations_of_a_server_are_bounded() -> None:
    violations = Violations()
    violations.keep, violations.keep_exceptions = 20, 0
    for number in range(200):
        try:
            raise ValueError(number) from KeyError(1)
        except ValueError as error:
            violations.report("bug", f"{number} " + "x" * 10**6, exception=error)
    assert [violation.text.split()[0] for violation in violations] == [
        str(n) for n in range(180, 200)
    ]
    assert sum(len(violation.text) for violation in violations) < 500_000
    # The frames of an exception reference everything in the request.
    assert all(violation.exception is not None for violation in violations)
    assert not any(
        p.exception.__traceback__ or p.exception.__cause__ for p in violations if p.exception
    )


@pytest.mark.slow
def test_a_server_of_weeks_forgets_old_violations(serve: Serve) -> None:
    server = serve("vector")
    fake = server.summary["fakes"][0]
    url, headers = fake["url"], fake["headers"]
    parts = urlsplit(url)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as sock:
        for first in range(0, 1100, 100):
            lines = [
                f"PATCH /nothing/{n} HTTP/1.1\r\nHost: x\r\n" for n in range(first, first + 100)
            ]
            sock.sendall("".join(f"{line}{head}\r\n" for line in lines).encode())
            answered = b""
            while answered.count(b"HTTP/1.1 4") < 100:
                answered += sock.recv(65536)
    status, violations = server.ask("GET", "/violations")
    assert (status, len(violations)) == (200, 1000)
    assert "/nothing/1099:" in violations[-1]["text"]
    assert "/nothing/100:" in violations[0]["text"]


def test_a_stream_nobody_reads_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "HEARTBEAT_SECONDS", 0.0)
    with Cloud(seed=1, delivery="driven") as cloud:
        cloud.journal.keep = 10
        app = ControlApp(cloud, "token")
        headers = [("Host", "localhost"), ("Authorization", "Bearer token")]
        stream = app.respond(Request("GET", f"{PREFIX}/journal/stream", headers))
        assert isinstance(stream, Stream)
        first = cloud.journal._recorder.add_event("x", "first")
        assert f"id: {first.number}\n".encode() in next(stream.chunks)
        for _ in range(1000):
            cloud.journal._recorder.add_event("x", "y" * 100)
        # The stream continues with the entries that are still kept, and holds no others.
        numbers = [entry.number for entry in cloud.journal.entries]
        chunks = [next(stream.chunks) for _ in numbers]
        assert [
            f"id: {number}\n".encode() in text for number, text in zip(numbers, chunks, strict=True)
        ]
        assert f"id: {numbers[-1]}\n".encode() in chunks[-1]
        assert next(stream.chunks) == b": still here\n\n"
        app.data.end_streams()
        assert list(stream.chunks) == []


# -- its own bugs ----------------------------------------------------------------------------------


def test_a_bug_of_the_control_app_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def broken(request: Request, endpoint: object) -> object:
        raise LookupError("lost")

    with Cloud(seed=1, delivery="driven") as cloud:
        app = ControlApp(cloud, "token", log_bug=said.append)
        with monkeypatch.context() as patch:
            patch.setattr(app, "call_endpoint", broken)
            assert ask(app, "GET", "/seed")[0] == 500
        ((violation,), (text,)) = ask(app, "GET", "/violations")[1], said
        assert violation["kind"] == "bug"
        (line, *trace), (said_line, *said_trace) = violation["text"].split("\n"), text.split("\n")
        assert line.startswith(said_line)
        assert trace == said_trace
        assert "control: GET /__control__/seed made the fake itself fail: LookupError" in text
        assert "Traceback" in text
        app.server_failed(OSError("no sockets"))
        assert "the server failed: OSError" in said[-1]
        assert ask(app, "GET", "/state")[1]["violations"] == 2


def test_serve_says_its_bugs_on_stderr() -> None:
    code = (
        "import sys\n"
        "from pytest_fakecloud import cli\n"
        "from pytest_fakecloud.standalone.control.clouds import CloudRoutes\n"
        "def broken(self, request): raise LookupError('lost')\n"
        "CloudRoutes.get_seed = broken\n"
        "sys.exit(cli.main(['serve', '--json', '--random', 'kv']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        server = Server(process, json.loads(process.stdout.readline()))
        assert server.ask("GET", "/seed")[0] == 500
        assert "lost" in server.ask("GET", "/violations")[1][0]["text"]
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "pytest-fakecloud: control: GET /__control__/seed made the fake itself fail" in errors
    assert "LookupError: lost" in errors


# -- other sites -----------------------------------------------------------------------------------


HOSTS: list[tuple[str, list[str], bool, list[str | None]]] = [
    ("127.0.0.1", [], True, [
        "127.0.0.1:8000", "127.8.9.1", "localhost:8000", "LOCALHOST.", "fakes.localhost:80",
        "[::1]:8000", "[::1]", "[::1]:", None,
    ]),
    ("127.0.0.1", [], False, [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000",
        "user@evil.example", "192.0.2.7", "", "[::1", "[::1].evil.example", "[::1].evil.example:80",
        "[::1]evil.example", "[::1]:80.evil.example", "[::1]@evil.example", "[::1]/", "[::1]?", "[::1]#",
        "[::1] ", "[::1]:8000:8000", "[::1][::1]", "evil.example[::1]", "[]", "[localhost]",
        "[127.0.0.1]", "::1", "[::1%25lo]", "user@127.0.0.1", "127.0.0.1/evil.example",
        "127.0.0.1:80.evil.example", "localhost:x", "127.0.0.1\\evil.example", "localhost\n",
    ]),
    ("127.0.0.1", ["fakes", "Other.Example"], True, ["fakes:8000", "other.example"]),
    ("192.0.2.7", [], True, ["192.0.2.7:8000"]),
    ("192.0.2.7", [], False, ["192.0.2.8:8000"]),
    ("0.0.0.0", [], True, ["192.0.2.7:8000", socket.gethostname()]),
    ("0.0.0.0", [], False, ["evil.example"]),
    ("::", [], True, ["[2001:db8::1]:8000"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "allowed", "taken", "header"),
    [(*row, header) for *row, headers in HOSTS for header in headers],
)
def test_the_host_is_one_of_the_servers_own(
    bound: str, allowed: list[str], taken: bool, header: str | None
) -> None:
    assert Hosts(bound, allowed).accepts(header) is taken


def test_a_page_under_another_name_gets_nothing(server: Server) -> None:
    for path in ("/", "/console/main.js", "/__control__/ready", "/__control__/state", "/nothing"):
        headers = {"Host": "evil.example:80", "Authorization": f"Bearer {server.token}"}
        answer = fetch("GET", f"{server.url}{path}", headers=headers)
        assert answer.status == 421
        assert "--allow-host NAME" in json.loads(answer.data)["error"]["message"]


def test_hosts_are_allowed_by_option_variable_and_file(serve: Serve, tmp_path: Any) -> None:
    file = tmp_path / "fakes.toml"
    file.write_text('allow_host = ["third.example"]\n', encoding="utf-8")
    for name, server in [
        ("first.example", serve("kv", "--allow-host", "first.example", "--allow-host", "x")),
        ("second.example", serve("kv", PYTEST_FAKECLOUD_ALLOW_HOST="x,second.example")),
        ("third.example", serve("kv", "--config", str(file))),
    ]:
        url = f"{server.url}/__control__/ready"
        assert fetch("GET", url, headers={"Host": f"{name}:9"}).status == 200
        assert fetch("GET", url, headers={"Host": "fourth.example"}).status == 421


def test_the_control_token_is_random_unless_it_is_chosen(server: Server, serve: Serve) -> None:
    other, chosen = serve("kv"), serve("kv", "--control-token", "a-chosen-token")
    assert chosen.token == "a-chosen-token"
    assert len({server.token, other.token}) == 2
    assert min(len(server.token), len(other.token)) >= 32
    for path in ("/", "/__control__/ready", "/__control__/live", "/__control__/openapi.json"):
        assert server.token.encode() not in fetch("GET", f"{server.url}{path}").data


def test_every_answer_keeps_other_sites_away(server: Server) -> None:
    for path in ("/", "/console/rows.js", "/favicon.ico", "/__control__/state", "/nothing"):
        for method in ("GET", "POST", "BREW"):
            headers = fetch(method, f"{server.url}{path}").headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "Access-Control-Allow-Origin" not in headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy


def test_the_page_needs_nothing_that_its_policy_forbids(server: Server) -> None:
    page = fetch("GET", server.url).data.decode()
    assert not re.search(r"<style|style=|\son\w+=|javascript:", page)
    assert not re.search(r"<script(?! src=)", page)
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    files = [f"/console/{name}" for name in FILES]
    assert {part for part in parts if not part.startswith("#")} <= {*files, "/favicon.ico"}
    assert fetch("GET", f"{server.url}/favicon.ico").headers["Content-Type"] == "image/svg+xml"
    for part in files:
        answer = fetch("GET", f"{server.url}{part}")
        assert answer.status == 200
        kind = "text/css" if part.endswith("css") else "text/javascript"
        assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
        script = answer.data.decode()
        assert set(re.findall(r'^import .* from "\./(.+)";$', script, re.MULTILINE)) <= set(FILES)
        assert not re.search(r"\beval\(|new Function|innerHTML|setAttribute\(\"style", script)
    for accepted, encoding in {
        "gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip;q=1": "gzip", "*": None, "gzipped": None,
        "gzip;q=0": None, "gzip; q=0.00, br": None,
    }.items():  # fmt: skip
        answer = fetch("GET", server.url, headers={"Accept-Encoding": accepted})
        assert answer.headers.get("Content-Encoding") == encoding, accepted
        assert answer.headers["Vary"] == "Accept-Encoding"
    for name in ("console.py", "console.html", "page", "..%2Fapi.py", "%2e%2e"):
        assert fetch("GET", f"{server.url}/console/{name}").status == 404
