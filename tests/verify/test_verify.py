"""Test comparisons with served fakes, with planted differences, and with real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from docs.generate.scenarios import PAGE, row
from pytest_fakecloud import Cloud
from pytest_fakecloud.cli import main
from pytest_fakecloud.verify import command, run
from pytest_fakecloud.verify.catalogue.scenarios import Scenario
from pytest_fakecloud.verify.run import (
    FOLLOWS,
    NOT_OFFERED,
    Result,
    as_html,
    as_json,
    as_text,
    verify,
)
from pytest_fakecloud.verify.sides import Bounds, ServiceUnreachable, Side, Target
from tests.kv.comparison.servers import RealServer, available
from tests.kv.table import WITHOUT_SERVER

from .test_bounds import plan_only
from .test_catalogue import OF_SERVERS

pytestmark = pytest.mark.slow

SERVERS = [pytest.param(name, binary, id=name) for name, binary in available()]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(delivery="driven") as cloud:
        yield cloud


SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "kv": ("kv_server", {}),
    "vector": ("vector_index", {"dimension": 5, "similarity": "EUCLIDEAN"}),
    "queue": ("queue", {}),
    "broker": ("broker", {"topics": {"orders": 3}}),
}


def served(cloud: Cloud, service: str) -> tuple[Any, Target]:
    """Start a fake, and return it with the target of a comparison."""
    fixture, settings = SERVED[service]
    real: Any = cloud._start(fixture, settings)
    if service == "broker":
        return real, Target(service, real.url, f"{real.username}:{real.password}", "orders")
    return real, Target(service, real.url, real.token)


def all_left(queue: Any) -> object:
    groups = [
        requests.get(queue.url + path, headers=queue.headers, timeout=5).json()
        for path in ("/v2/queues", "/v2/topics")
    ]
    return [*queue.pending(), *queue.schedules(), *groups]


@pytest.mark.parametrize(
    ("service", "look", "left"),
    [
        ("kv", lambda kv: kv.keys(), ["of the user"]),
        ("vector", lambda index: index.namespaces(), [""]),
        ("queue", all_left, [[], []]),
        ("broker", lambda broker: None, None),  # No request deletes produced records.
    ],
)
def test_a_served_fake_is_the_same_and_left_as_it_was(
    cloud: Cloud, service: str, look: Callable[[Any], object], left: object
) -> None:
    real, target = served(cloud, service)
    if service == "kv":
        real.execute("SET", "of the user", "1")
    titles: list[str] = []
    result = verify(target, titles.append)
    assert [str(comparison.step) for comparison in result.differing] == []
    assert result.explained == []
    assert len(titles) == result.scenarios > 3
    assert len(result.comparisons) > 20
    assert result.requests > len(result.comparisons)
    assert look(real) == left


def test_nothing_is_left_behind_by_what_is_interrupted(cloud: Cloud) -> None:
    kv, target = served(cloud, "kv")
    kv.faults.drop(command="INCRBYFLOAT")
    with pytest.raises(ServiceUnreachable, match="no response from"):
        verify(target)
    assert kv.keys() == []


PLANTED: dict[str, list[Any]] = {
    "kv": [
        ({"command": "SCARD"}, 200, {"result": 99}, "result: 99, the fake 4"),
        ({"command": "HGETALL"}, 200, {"result": ["a", "9", "b", "2"]}, "the fake"),
        ({"command": "LINSERT"}, 400, {"error": "ERR no"}, "status 400, the fake 200"),
        ({"command": "JSON.TYPE"}, 200, {"result": []}, "has 0 members, the fake's 5"),
        ({"command": "TTL"}, 200, {"result": 5000}, "result: 5000, the fake 100"),
        ({"command": "TIME"}, 200, {"result": "now"}, "is a string, the fake's a list"),
    ],
    "vector": [
        ({"route": "query"}, 200, {"result": []}, "has 0 members"),
        ({"route": "delete"}, 404, {"error": "x"}, "status 404"),
    ],
    "queue": [
        ({"route": "get_queue"}, 200, {"name": "x"}, "name: 'x', the fake"),
        ({"route": "get_dead_letter"}, 404, {"error": "other words"}, "other words"),
    ],
    "broker": [({"route": "produce"}, 200, {"topic": "orders"}, "the fake")],
}
"""Changed answers of a real service, each with the expected description of the difference. One run
finds them all.
"""


def keep_only(monkeypatch: pytest.MonkeyPatch, is_kept: Callable[[Scenario], bool]) -> None:
    """Let comparisons run only some scenarios of the catalogue."""
    whole = run.plan
    monkeypatch.setattr(run, "plan", lambda *args: [*filter(is_kept, whole(*args))])


def is_of_data(scenario: Scenario) -> bool:
    return scenario.title.partition(":")[0] in OF_SERVERS


@pytest.mark.parametrize("service", PLANTED)
def test_planted_differences_are_found(
    cloud: Cloud, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, target = served(cloud, service)
    planted = PLANTED[service]
    for where, status, body, _ in planted:
        real.faults.respond(status, body, **where)
    commands = {where.get("command") for where, *_ in planted}
    if service == "kv":
        keep_only(monkeypatch, lambda story: any(step.subject in commands for step in story.steps))
    result = verify(target)
    text = as_text([result])
    assert f"{len(result.differing)} DIFFER" in text
    for where, _, body, words in planted:
        differences = [
            comparison.differs
            for comparison in result.differing
            if words in str(comparison.differs)
            and where.get("command", "") in str(comparison.step)
            and comparison.real.body == body
        ]
        assert differences, (where, [comparison.differs for comparison in result.differing])
        assert words in text


def test_what_follows_from_a_step_left_undone_is_no_difference_of_its_own(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference is attributed to a skipped step only if it follows that step in the same
    scenario.
    """
    plan_only(monkeypatch, "## one\nECHO x\nSET @a 1\nGET @a\nECHO x\n## other\nECHO x")
    kv, target = served(cloud, "kv")
    kv.faults.respond(200, {"result": "planted"}, command="ECHO")
    kv.faults.respond(400, {"error": "ERR unknown command"}, command="SET")
    comparisons = [
        (comparison.step.subject, comparison.differs, comparison.reason)
        for comparison in verify(target).comparisons
    ]
    echo = "result: 'planted', the fake 'x'"
    assert comparisons == [
        ("ECHO", echo, None),
        ("SET", "status 400, the fake 200", NOT_OFFERED),
        ("GET", "result: None, the fake '1'", FOLLOWS),
        ("ECHO", echo, FOLLOWS),
        ("ECHO", echo, None),
    ]


@pytest.mark.parametrize(("name", "binary"), SERVERS)
def test_real_servers(name: str, binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RealServer(name, binary)
    try:
        server.call([b"SET", b"of the user", b"1"])
        target = Target("kv", f"unix://{server._folder.name}/s")
        result = verify(target)
        # The second run finds data that the first one left in the server besides keys, such as
        # scripts.
        keep_only(monkeypatch, lambda scenario: not is_of_data(scenario))
        second = verify(target)
        assert server.call([b"KEYS", b"*"]) == [b"of the user"]
    finally:
        server.close()
    for result_of_run in (result, second):
        assert [
            (str(comparison.step), comparison.differs) for comparison in result_of_run.differing
        ] == []
    assert len(result.comparisons) > 300
    explained = [comparison for comparison in result.explained if is_of_data(comparison.scenario)]
    # Only commands that neither server has may differ in scenarios about data.
    assert {comparison.reason for comparison in explained} <= {NOT_OFFERED}
    assert {comparison.step.subject for comparison in explained} <= WITHOUT_SERVER
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    if not any(line.startswith(f"| {server.title} |") for line in rows):
        pytest.skip(f"{PAGE.name} was generated without {server.title}")
    assert row(server.title, result) in rows, "run: python -m docs.generate"


def test_wrong_credentials_and_addresses(cloud: Cloud) -> None:
    index, _ = served(cloud, "vector")
    with pytest.raises(ServiceUnreachable, match="check the address and the credentials"):
        verify(Target("vector", index.url, "wrong"))
    broker, target = served(cloud, "broker")
    with pytest.raises(ServiceUnreachable, match=r"'none' is not a topic. Known topics: orders"):
        verify(Target("broker", broker.url, target.token, "none"))
    sparse = cloud.vector_index(name="sparse", kind="sparse")
    with pytest.raises(ServiceUnreachable, match="scenarios need dense vectors"):
        verify(Target("vector", sparse.url, sparse.token))


def test_a_used_up_quota_ends_it(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_only(monkeypatch, "## one\nSET @a 1\nGET @a")
    kv, target = served(cloud, "kv")
    kv.faults.respond(429, times=1, command="GET")
    with pytest.raises(
        ServiceUnreachable, match=r"rate limit or quota is used up. The run ends here"
    ):
        verify(target)


class TestCommand:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compare only a few requests, because these tests are not about the comparison itself."""
        whole = run.plan
        monkeypatch.setattr(run, "plan", lambda target, dimension=2: whole(target, dimension)[:2])

    def test_text_json_and_page(
        self, cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kv, target = served(cloud, "kv")
        kv.faults.respond(200, {"result": "<b>planted</b>"}, command="GETDEL")
        record, page = tmp_path / "found.json", tmp_path / "found.html"
        line = ["verify", "--kv", target.url, "--token", target.token, "--yes"]
        assert main([*line, "--json", str(record), "--html", str(page)]) == command.EXIT_DIFFERS
        out, err = capsys.readouterr()
        assert "kv: " in out
        assert "2 DIFFER" in out
        assert "GETDEL {p}b" in out.replace("'", "")
        assert "sets, reads and deletes keys" in err
        (service,) = json.loads(record.read_text())["services"]
        assert service["differing"] == 2
        assert [step["differs"] for step in service["steps"]].count(None) == service["compared"] - 2
        text = page.read_text()
        assert "&lt;b&gt;planted" in text
        assert "<b>planted" not in text
        for output in (out, err, record.read_text(), text):
            assert target.token not in output

    def test_the_same_is_exit_0(self, cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
        _, target = served(cloud, "kv")
        line = ["verify", "--kv", target.url, "--kv-token", target.token, "--yes", "--quiet"]
        assert main([*line, "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out)["services"][0]["differing"] == 0

    def test_nothing_is_sent_unasked(
        self, cloud: Cloud, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, target = served(cloud, "kv")
        line = ["verify", "--kv", target.url, "--token", target.token]
        assert main([*line, "--dry-run"]) == 0
        assert main(line) == command.EXIT_USAGE
        assert "nothing was sent: answer yes, or pass --yes" in capsys.readouterr().err
        assert len(cloud.journal.calls()) == 0

    @pytest.mark.parametrize(("answer", "sent"), [("y", True), (" Yes ", True), ("", False)])
    def test_whoever_is_there_is_asked(
        self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, answer: str, sent: bool
    ) -> None:
        _, target = served(cloud, "kv")
        asked: list[str] = []
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
        code = main(["verify", "--kv", target.url, "--token", target.token])
        assert asked == ["Continue? [y/N] "]
        assert code == (0 if sent else command.EXIT_USAGE)
        assert bool(cloud.journal.calls()) == sent

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("", "nothing to compare with: pass at least one of --kv URL"),
            ("--kv ftp://x --token t", "expected one of http, https, redis"),
            ("--queue redis://x --token t", "expected one of http, https"),
            ("--queue http://x", "--queue needs credentials: --queue-token TOKEN"),
            ("--broker http://x --token u:p", "--broker needs --broker-topic"),
            ("--kv http://x --queue http://x --token t", "needs credentials: --kv-token"),
            (
                "--kv http://x --kv-token a --queue http://x --queue-token b --token t",
                "--token is for one service",
            ),
        ],
    )
    def test_wrong_options(self, line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", *line.split(), "--yes"]) == command.EXIT_USAGE
        assert words in capsys.readouterr().err


def test_an_empty_value_of_an_earlier_reply_is_not_replaced() -> None:
    side = Side(Target("queue", "http://127.0.0.1:1", "token"), "verify_1", Bounds())
    side._stored |= {"id": "", "name": "verify_1x"}
    assert side._shown("verify_1x verify_1") == "{name} {p}"
    side.close()


def test_an_empty_comparison_can_be_shown() -> None:
    nothing = Result(Target("kv", "http://x", "t"))
    assert "0 of 0 replies agree" in as_text([nothing])
    assert json.loads(as_json([nothing]))["services"][0]["steps"] == []
    assert "<h2>" in as_html([nothing])
