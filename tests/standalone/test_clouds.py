"""Test isolated clouds of a server, which ``POST /clouds`` creates."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_fakecloud import Cloud, ContractError, ServiceError
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.standalone.commands import ControlClient
from pytest_fakecloud.standalone.control import clouds

from .conftest import Serve, Server, fetch, message

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server with all services, whose clouds start from a state file."""
    file: Path = tmp_path_factory.mktemp("state") / "state.json"
    state = {
        "kv": {"values": {"plan": "free"}},
        "destinations": {"https://app.test": 200},
        "faults": {"queue": [{"kind": "drop", "route": "publish"}]},
    }
    file.write_text(json.dumps(state), encoding="utf-8")
    settings = ("--kv", "daily_limit=50", "--broker", "password=own")
    return serve("--load", str(file), *settings, "--now", "2026-01-01T00:00:00Z")


@pytest.fixture(autouse=True)
def _none_left(host: Server) -> Iterator[None]:
    yield
    for entry in host.ask("GET", "/clouds")[1]:
        host.ask("DELETE", f"/clouds/{entry['id']}")


def made(host: Server, **options: Any) -> dict[str, Any]:
    """Create a cloud."""
    status, cloud = host.ask("POST", "/clouds", options)
    assert status == 200, cloud
    return dict(cloud)


def ended(host: Server, cloud: dict[str, Any]) -> None:
    assert host.ask("DELETE", f"/clouds/{cloud['id']}") == (200, {"closed": True})


def kv(cloud: dict[str, Any], path: str) -> Any:
    """Return an answer of the cloud's key-value server."""
    env = cloud["env"]
    headers = {"Authorization": f"Bearer {env['UPSTASH_REDIS_REST_TOKEN']}"}
    answer = fetch("GET", f"{env['UPSTASH_REDIS_REST_URL']}{path}", headers=headers)
    return json.loads(answer.data).get("result", answer.status)


def test_a_cloud_is_like_its_server_and_shares_nothing_with_it(host: Server) -> None:
    cloud = made(host)
    own, env = host.summary["env"], cloud["env"]
    assert env.keys() == own.keys()
    shared = {"QSTASH_DEV", "QSTASH_REGION", "UPSTASH_KAFKA_REST_USERNAME"}
    assert {name for name in env if env[name] == own[name]} == shared
    # The cloud has the data that the server loaded, and the server's settings.
    assert kv(cloud, "/get/plan") == "free"
    kv(cloud, "/set/plan/paid")
    with ControlClient(env["PYTEST_FAKECLOUD_URL"], env["PYTEST_FAKECLOUD_TOKEN"]) as inside:
        moved = inside.ask("POST", "/clock", {"action": "advance", "by": "1d"})
        assert moved["now"] == "2026-01-02T00:00:00+00:00"
        calls = inside.ask("POST", "/call", {"name": "journal.calls"})["value"]
        assert [call["target"] for call in calls] == ["/get/plan", "/set/plan/paid"]
        inside.ask("POST", "/reset", {})
        assert kv(cloud, "/get/plan") == "free"
    assert host.ask("GET", "/clock")[1]["now"] == "2026-01-01T00:00:00+00:00"
    assert host.ask("GET", "/journal")[1] == []
    # The credentials of one cloud are not valid in another.
    other = made(host, services={"kv": {}})
    other["env"]["UPSTASH_REDIS_REST_TOKEN"] = env["UPSTASH_REDIS_REST_TOKEN"]
    assert kv(other, "/get/plan") == 401
    ended(host, other)
    ended(host, cloud)
    with pytest.raises(ContractError, match="no stand-alone server responds"):
        ControlClient(env["PYTEST_FAKECLOUD_URL"], "x").fakes()


def test_a_cloud_can_have_services_and_a_clock_of_its_own(host: Server) -> None:
    cloud = made(
        host,
        services={"kv": {"name": "store"}, "queue": {"retries": 1}},
        seed="mine", now="2030-01-01T00:00:00Z", clock="running",
    )  # fmt: skip
    assert cloud["seed"] == "mine"
    (entry,) = host.ask("GET", "/clouds")[1]
    assert entry["fakes"] == ["store", "queue"]
    assert entry["url"] == cloud["env"]["PYTEST_FAKECLOUD_URL"]
    url, token = entry["url"], cloud["env"]["PYTEST_FAKECLOUD_TOKEN"]
    headers = {"Authorization": f"Bearer {token}"}
    clock = json.loads(fetch("GET", f"{url}/__control__/clock", headers=headers).data)
    assert (clock["mode"], clock["now"][:4]) == ("running", "2030")
    # A cloud cannot create further clouds.
    assert fetch("POST", f"{url}/__control__/clouds", headers=headers).status == 404
    ended(host, cloud)
    assert host.ask("GET", "/clouds") == (200, [])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"services": {"kf": {}}},
            "'kf' is not a service. Known services: kv, vector, broker, queue",
        ),
        ({"services": ["kv"]}, "services is ['kv']; pass an object"),
        ({"services": {"kv": 5}}, "services.kv is 5; pass an object"),
        ({"services": {"kv": {"colour": 1}}}, "'colour' is not a setting of kv_server"),
        ({"services": {"kv": {}}, "now": "yesterday"}, "'yesterday' is not a time"),
        ({"service": {}}, "did you mean 'services'?"),
    ],
)
def test_wrong_options_are_rejected_and_leave_nothing(
    host: Server, body: dict[str, Any], text: str
) -> None:
    assert text in message(host.ask("POST", "/clouds", body))
    assert host.ask("GET", "/clouds") == (200, [])


def test_a_state_file_is_loaded_as_far_as_there_are_services(host: Server) -> None:
    ended(host, made(host, services={"vector": {}}))
    cloud = made(host, services={"kv": {}})
    assert kv(cloud, "/get/plan") == "free"
    ended(host, cloud)


def test_an_unknown_cloud_cannot_be_ended(host: Server) -> None:
    assert "there is no cloud '99'" in message(host.ask("DELETE", "/clouds/99"), 404)


def test_a_hundred_side_by_side(host: Server) -> None:
    """Started, used and ended by several clients at the same time."""
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: made(host, seed=number), range(100)))
        list(pool.map(lambda cloud: kv(cloud, f"/set/own/{cloud['seed']}"), created))
        assert list(pool.map(lambda cloud: kv(cloud, "/get/own"), created)) == [
            str(cloud["seed"]) for cloud in created
        ]
        assert len(host.ask("GET", "/clouds")[1]) == 100
        places = [cloud["env"][name] for cloud in created for name in ("QSTASH_URL", "REDIS_URL")]
        assert len(set(places)) == 200
        list(pool.map(lambda cloud: ended(host, cloud), created))
    assert host.ask("GET", "/clouds") == (200, [])


def test_the_number_of_clouds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    from pytest_fakecloud.standalone.api import ControlApp

    monkeypatch.setattr(clouds, "MOST_CLOUDS", 0)
    with Cloud() as cloud:
        opener: Any = nullcontext
        mount = cloud._context.mount(
            ControlApp(cloud, "token", clouds=clouds.IsolatedClouds(opener))
        )
        headers = {"Authorization": "Bearer token"}
        answer = fetch("POST", f"{mount.url}/__control__/clouds", headers=headers)
        assert (answer.status, b"there are 0 clouds" in answer.data) == (422, True)
        mount.close()


def test_clouds_are_listed_while_one_starts() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def opener(wanted: object) -> NoReturn:
        begun.set()
        go_on.wait(20)
        raise ContractError("a setting is wrong")

    isolated = clouds.IsolatedClouds(opener)
    request = Request("POST", "/")
    request.route = "new_cloud"
    with ThreadPoolExecutor(2) as pool:
        starting = pool.submit(isolated.new_cloud, request)
        assert begun.wait(10)
        try:
            assert pool.submit(isolated.get_clouds, Request("GET", "/")).result(10) == []
        finally:
            go_on.set()
        with pytest.raises(ServiceError, match="a setting is wrong"):
            starting.result(10)


def test_clouds_end_with_their_server(serve: Serve) -> None:
    server = serve("kv")
    cloud = made(server)
    server.process.terminate()
    assert server.process.wait(10) == 0
    with pytest.raises(ContractError, match="no stand-alone server responds"):
        ControlClient(cloud["env"]["PYTEST_FAKECLOUD_URL"], "x").fakes()


def failed(server: Server, cloud: Any, test: str = "test one") -> Any:
    """Keep a copy of a cloud whose test has failed."""
    status, reply = server.ask("POST", f"/clouds/{cloud['id']}/failed", {"test": test})
    assert status == 200, reply
    return reply


def inside(cloud: Any) -> ControlClient:
    env = cloud["env"]
    return ControlClient(env["PYTEST_FAKECLOUD_URL"], env["PYTEST_FAKECLOUD_TOKEN"])


def test_the_cloud_of_a_failed_test_is_kept_with_its_console(host: Server) -> None:
    cloud = made(host, services={"kv": {}}, clock="running")
    kv(cloud, "/set/plan/paid")
    failed_cloud = failed(host, cloud)
    with inside(cloud) as file:
        file.ask("POST", "/begin", {})
    assert kv(cloud, "/get/plan") == "free"
    ended(host, cloud)
    [entry] = host.ask("GET", "/clouds")[1]
    assert (entry["id"], entry["fakes"], entry["test"]) == (
        failed_cloud["id"],
        ["kv_server"],
        "test one",
    )
    address, code = host.ask("POST", f"/clouds/{failed_cloud['id']}/codes")[1]["url"].split(
        "/#code="
    )
    assert address == entry["url"]
    signed_in = fetch("POST", f"{address}/__control__/session", json={"code": code})
    token = json.loads(signed_in.data)["token"]
    assert token == failed_cloud["env"]["PYTEST_FAKECLOUD_TOKEN"]
    with ControlClient(address, token) as copy:
        assert copy.ask("GET", "/clock")["mode"] == "frozen"
        [row] = copy.ask("GET", "/journal")
        assert row["text"]["what"] == "SET plan paid"
    assert kv(failed_cloud, "/get/plan") == "paid"
    ended(host, failed_cloud)
    assert host.ask("GET", "/clouds") == (200, [])


def test_a_kept_copy_has_the_messages_and_hides_the_credentials_of_the_test(host: Server) -> None:
    cloud = made(host, services={"queue": {"delivery": "background"}}, clock="frozen")
    env = cloud["env"]
    with inside(cloud) as file:
        file.ask("DELETE", "/fakes/queue/faults")
    fetch(
        "POST", f"{env['QSTASH_URL']}/v2/publish/http://127.0.0.1:1/hook?t={env['QSTASH_TOKEN']}",
        headers={"Authorization": f"Bearer {env['QSTASH_TOKEN']}", "Upstash-Delay": "1h"},
    )  # fmt: skip
    failed_cloud = failed(host, cloud)
    with inside(failed_cloud) as copy:
        assert len(copy.ask("GET", "/fakes/queue/lists/messages")["items"]) == 1
        journal = json.dumps(copy.ask("GET", "/journal"))
    assert "publish" in journal
    assert env["QSTASH_TOKEN"] not in journal


def test_a_bounded_number_of_failed_clouds_is_kept(host: Server) -> None:
    cloud = made(host, services={"kv": {}})
    failed_clouds = [failed(host, cloud, f"test {n}") for n in range(clouds.MOST_FAILED + 2)]
    left = {entry["id"]: entry["test"] for entry in host.ask("GET", "/clouds")[1]}
    assert left == {
        cloud["id"]: "",
        **{
            failed_cloud["id"]: f"test {n}"
            for n, failed_cloud in enumerate(failed_clouds)
            if n >= 2
        },
    }


def test_the_report_of_a_failed_test_marks_what_its_statement_compared(host: Server) -> None:
    cloud = made(host, services={"kv": {}})
    for path in ("/set/shelf/8", "/set/other/9", "/get/other", "/get/shelf", "/get/other"):
        kv(cloud, path)
    for read, statement in (
        ({"read": ["shelf"]}, "compared shelf; last written by SET shelf 8 <-- OK"),
        ({"read": [8]}, "compared shelf; last written by SET shelf 8 <-- OK"),
        ({"read": ["lost"]}, 'last call: GET other <-- "9"'),
        ({"read": None}, 'last call: GET other <-- "9"'),
        ({}, 'last call: GET other <-- "9"'),
    ):
        body = {"test": "test one", "failure": "AssertionError: 8", **read}
        status, reply = host.ask("POST", f"/clouds/{cloud['id']}/failed", body)
        assert (status, reply["page"]) == (200, None)
        assert reply["statement"].removeprefix("The failing statement ") == statement
        assert cloud["env"]["UPSTASH_REDIS_REST_URL"] in reply["report"]
    touched = [line for line in reply["report"].splitlines() if line.startswith("> ")]
    assert any('GET other <-- "9"' in line for line in touched)


def test_a_failed_test_without_calls(host: Server) -> None:
    reply = failed(host, made(host, services={"kv": {}}))
    assert (reply["statement"], "no client has made a call" in reply["report"]) == ("", True)


def test_a_server_writes_the_pages_of_failed_tests(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    server = serve("kv", "--report", str(folder), "--now", "2026-01-01T00:00:00Z")
    cloud = made(server)
    kv(cloud, "/set/shelf/7\u202e8")
    token = cloud["env"]["UPSTASH_REDIS_REST_TOKEN"]
    error = f"Error: \x1b[31mexpected\x1b[39m 1\n    at shop.test.js:3:5 {token}"
    body = {"test": "a.js > one", "failure": error, "read": ["shelf"]}
    status, reply = server.ask("POST", f"/clouds/{cloud['id']}/failed", body)
    page = Path(reply["page"])
    assert (status, page.parent) == (200, folder)
    data = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert (data["test"], data["statement"]["kind"]) == ("a.js > one", "compared")
    assert data["failure"] == "Error: expected 1\n    at shop.test.js:3:5 ***"
    assert [row["marks"] for row in data["rows"]] == [["touched"]]
    server.process.terminate()
    assert server.process.wait(10) == 0
    index = (folder / "index.html").read_text("utf-8")
    for text in (page.name, "a.js &gt; one", "Error: expected 1<", "last written by SET shelf"):
        assert text in index


def test_a_folder_that_cannot_be_written(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    server = serve("kv", "--report", str(folder))
    folder.rmdir()
    folder.write_text("a file")
    reply = failed(server, made(server))
    assert reply["page"] is None
    assert "timeline: (it could not be written: " in reply["report"]


@pytest.mark.parametrize(
    ("method", "path", "status", "wanted"),
    [
        ("DELETE", "9999", 404, "no cloud '9999'"),
        ("POST", "9999/failed", 404, "no cloud '9999'"),
        ("POST", "{id}/failed", 422, "must be the name of a test"),
    ],
)
def test_a_wrong_end_is_refused(
    host: Server, method: str, path: str, status: int, wanted: str
) -> None:
    cloud = made(host, services={"kv": {}})
    body = {"test": ""} if method == "POST" else None
    code, answer = host.ask(method, f"/clouds/{path.format(**cloud)}", body)
    assert (code, wanted in answer["error"]["message"]) == (status, True)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, "test"),
        ({"test": 5}, "test"),
        ({"test": "a", "read": "shelf"}, "read"),
        ({"test": "a", "failure": ["x"]}, "failure"),
        ({"test": "a", "reads": []}, "reads"),
    ],
)
def test_a_wrong_report_of_a_failed_test_is_refused(
    host: Server, body: dict[str, Any], wanted: str
) -> None:
    cloud = made(host, services={"kv": {}})
    assert wanted in message(host.ask("POST", f"/clouds/{cloud['id']}/failed", body))
    assert len(host.ask("GET", "/clouds")[1]) == 1


def test_actions_and_looks_over_the_control_api_are_rows_and_what_was_read(host: Server) -> None:
    cloud = made(host, services={"kv": {}, "broker": {"topics": {"orders": 1}}})
    with inside(cloud) as test:

        def call(fake: str, name: str, *args: Any) -> Any:
            reply = test.ask("POST", "/call", {"object": fake, "name": name, "args": args})
            assert reply.keys() == {"value"}, reply
            return reply

        call("kv_server", "execute", "SET", "shelf", "8")
        call("broker", "produce", "orders", "a kettle")
        call("broker", "topic.delete", "orders")
        assert call("kv_server", "value", "shelf") == {"value": "8"}
        reply = failed(host, cloud)
        kv(cloud, "/get/other")
        later = failed(host, cloud)
        call("kv_server", "value", "shelf")
        test.ask("POST", "/begin", {})
        of_next_test = failed(host, cloud)
    lines = reply["report"].splitlines()
    assert lines[:4] == [
        "The failing statement used kv_server.value('shelf'); last written by",
        "  kv_server.execute('SET', 'shelf', '8')",
        "> 00:00:00 * test kv_server.execute('SET', 'shelf', '8') <== read",
        "  broker.produce('orders', 'a kettle'); broker.topic('orders').delete()",
    ]
    assert later["statement"] == "last call: GET other <-- null"
    assert of_next_test["statement"] == ""


def test_calls_of_methods_are_no_rows_of_the_server_itself(host: Server) -> None:
    host.call("kv_server", "execute", "SET", "shelf", "8")
    assert [row["kind"] for row in host.ask("GET", "/journal")[1]] == []
