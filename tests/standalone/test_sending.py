"""Test that recorded calls are sent again, and that workflow runs go on from a step."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
import requests

from ..harness import wait_until
from .conftest import Server, fetch, message


def send(server: Server, fake: str, target: str, body: Any = "", **headers: str) -> Any:
    sent = {"target": target, "body": body, "headers": headers}
    status, answer = server.ask("POST", f"/fakes/{fake}/requests", sent)
    assert status == 200, answer
    return answer


def row(server: Server, number: int) -> Any:
    return next(one for one in server.ask("GET", "/journal")[1] if one["number"] == number)


def test_a_recorded_request_is_sent_again_byte_for_byte_or_changed(server: Server) -> None:
    kv = server.fake("kv_server")
    headers = {**kv["headers"], "X-Trace": "7"}
    fetch("POST", f"{kv['url']}/set/bytes", body=b"\xff\x00", headers=headers)
    first = server.ask("GET", "/journal")[1][-1]
    fetch("POST", kv["url"], json=["DEL", "bytes"], headers=kv["headers"])
    status, again = server.ask("POST", f"/journal/{first['number']}/again", {})
    assert (status, again["status"], json.loads(again["body"])) == (200, 200, {"result": "OK"})
    assert server.call("kv_server", "execute", "GET", "bytes") == {"base64": "/wA="}
    sent = row(server, again["row"])["request"]
    assert sent["line"] == "POST /set/bytes"
    assert ["X-Trace", "7"] in sent["headers"]
    changed = {"target": "/set/other", "body": "text"}
    assert server.ask("POST", f"/journal/{first['number']}/again", changed)[1]["status"] == 200
    assert server.call("kv_server", "execute", "GET", "other") == "text"


def test_a_recorded_command_is_sent_again_over_its_protocol(server: Server) -> None:
    with redis.Redis.from_url(server.fake("kv_server")["env"]["REDIS_URL"]) as client:
        client.incrby("n", 2)
    first = server.ask("GET", "/journal")[1][-1]
    status, again = server.ask("POST", f"/journal/{first['number']}/again", {})
    assert (status, again["replies"]) == (200, [4])
    assert row(server, again["row"])["response"]["line"] == "reply"
    rows = server.ask("GET", "/journal")[1]
    named = [one["number"] for one in rows if one["data"].get("again_of")]
    assert named == [again["row"]], "not its AUTH"
    commands = [["MULTI"], ["SET", "a", "\udcff"], ["GET", "n"], ["EXEC"], ["NONE"]]
    again = server.ask("POST", f"/journal/{first['number']}/again", {"commands": commands})[1]
    assert again["replies"][:4] == ["OK", "QUEUED", "QUEUED", ["OK", "4"]]
    assert "NONE" in again["replies"][4]["error"]
    assert server.call("kv_server", "execute", "GET", "a") == {"base64": "/w=="}
    with redis.Redis.from_url(server.fake("kv_server")["env"]["REDIS_URL"]) as client:
        client.set("bytes", b"\xff")
    of_bytes = server.ask("GET", "/journal")[1][-1]["number"]
    server.call("kv_server", "execute", "DEL", "bytes")
    assert server.ask("POST", f"/journal/{of_bytes}/again", {})[1]["replies"] == ["OK"]
    assert server.call("kv_server", "execute", "GET", "bytes") == {"base64": "/w=="}
    none = server.ask("POST", f"/journal/{first['number']}/again", {"commands": [[]]})
    assert "at least one word" in message(none)
    assert "no call 99999" in message(server.ask("POST", "/journal/99999/again", {}), 404)


@pytest.fixture
def workflow(server: Server) -> Iterator[Any]:
    """An application that serves a workflow of two steps, and the lists of steps that it received."""
    queue, received = server.fake("queue"), list[list[Any]]()

    class Application(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            steps = [b64decode(step["body"]).decode() for step in body]
            outs = [json.loads(step)["out"] for step in steps[1:]]
            received.append([steps[0], *outs])
            run = self.headers["Upstash-Workflow-RunId"]
            own = {**queue["headers"], "Upstash-Workflow-RunId": run,
                   "Upstash-Workflow-CallType": "step", "Upstash-Workflow-Url": url}  # fmt: skip
            if len(outs) < 2:
                step = {"stepId": len(outs) + 1, "stepName": f"step {len(outs) + 1}",
                        "stepType": "Run", "concurrent": 1,
                        "out": f"{[steps[0], *outs][-1]}+"}  # fmt: skip
                requests.post(f"{queue['url']}/v2/publish/{url}", json=step, headers=own, timeout=9)
            else:
                requests.delete(
                    f"{queue['url']}/v2/workflows/runs/{run}?cancel=false",
                    data=outs[-1],
                    headers=own,
                    timeout=9,
                )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Application) as application:
        url = f"http://127.0.0.1:{application.server_port}/flow"
        threading.Thread(target=application.serve_forever, daemon=True).start()
        yield url, received
        application.shutdown()


def test_a_run_goes_on_from_a_step_with_another_result_or_input(
    server: Server, workflow: tuple[str, list[Any]]
) -> None:
    url, received = workflow
    started = send(
        server, "queue", f"/v2/trigger/{url}", "in",
        **{"Upstash-Forward-Upstash-Workflow-Sdk-Version": "1"},
    )  # fmt: skip
    run_id = json.loads(started["body"])["workflowRunId"]

    def runs() -> dict[str, Any]:
        found = server.ask("GET", "/fakes/queue/lists/runs")[1]["items"]
        return {one["id"]: one["state"] for one in found}

    wait_until(lambda: runs() == {run_id: "success"})
    assert received == [["in"], ["in", "in+"], ["in", "in+", "in++"]]

    def steps() -> list[Any]:
        return list(server.ask("GET", f"/fakes/queue/lists/runs/{run_id}")[1]["steps"])

    # The run ends while the last delivery, from within which the application ends it, is in progress.
    wait_until(lambda: len(steps()) == 2)
    first, second = (step["message"] for step in steps())

    def rerun(**changes: Any) -> list[Any]:
        received.clear()
        status, made = server.ask("POST", f"/fakes/queue/runs/{run_id}/rerun", changes)
        assert status == 200, made
        wait_until(lambda: runs()[made["id"]] == "success")
        shown = server.ask("GET", f"/fakes/queue/lists/runs/{made['id']}")[1]
        assert shown["input"] == changes.get("input", "in")
        return list(received)

    assert rerun(message=first, result="other") == [["in", "other"], ["in", "other", "other+"]]
    assert rerun(message=second, again=True) == [["in", "in+"], ["in", "in+", "in++"]]
    assert rerun(message=second, result="end", input="new") == [["new", "in+", "end"]]
    assert rerun(message=first, again=True, input="new")[-1] == ["new", "new+", "new++"]
    assert rerun(message=second, again=True, results={first: "other"}) == [
        ["in", "other"], ["in", "other", "other+"],
    ]  # fmt: skip
    assert runs()[run_id] == "success"
    path = f"/fakes/queue/runs/{run_id}/rerun"
    unknown = server.ask("POST", path, {"message": "msg_none"})
    assert "no result of the message 'msg_none'" in message(unknown)
    later = server.ask("POST", path, {"message": first, "results": {second: "x"}})
    assert "before this step" in message(later)
    both = server.ask("POST", path, {"message": first, "again": True, "result": "x"})
    assert "needs no result" in message(both)


def test_a_request_names_the_row_that_it_sends_again(server: Server) -> None:
    first = send(server, "kv_server", "/", ["SET", "a", "1"])["row"]
    body = {"body": ["SET", "a", "2"], "again_of": first}
    row = server.ask("POST", "/fakes/kv_server/requests", body)[1]["row"]
    [found] = server.ask("GET", f"/journal?after={row - 1}&limit=1")[1]
    assert found["data"]["again_of"] == first


def test_a_message_that_is_sent_again_and_the_new_one_name_each_other(server: Server) -> None:
    target, retries = "/v2/publish/http://127.0.0.1:9/hook", {"Upstash-Retries": "0"}
    failed = json.loads(send(server, "queue", target, "in", **retries)["body"])["messageId"]

    def listed(name: str) -> Any:
        return server.ask("GET", f"/fakes/queue/lists/{name}")[1]

    wait_until(lambda: listed("dead-letters")["items"])
    delivery = next(row for row in server.ask("GET", "/journal")[1] if row["kind"] == "delivery")
    body = {"target": target, "headers": retries, "again_of": delivery["number"]}
    again = server.ask("POST", "/fakes/queue/requests", body)[1]
    new = json.loads(again["body"])["messageId"]
    assert listed("messages")["resends"] == listed("dead-letters")["resends"] == {failed: [new]}
    assert listed(f"messages/{failed}")["resent_as"] == [new]
    assert listed(f"messages/{new}")["resent_from"] == failed
    # Both are dead letters until one is retried: then its message has only failed.
    wait_until(lambda: len(listed("dead-letters")["items"]) == 2)
    assert listed("messages")["facets"] == {"dead_lettered": 2}
    letter = next(one for one in listed("dead-letters")["items"] if one["message"] == failed)
    retried = json.loads(send(server, "queue", f"/v2/dlq/retry?dlqIds={letter['id']}")["body"])
    wait_until(lambda: len(listed("dead-letters")["items"]) == 2)
    states = {one["id"]: (one["state"], one["retries"]) for one in listed("messages")["items"]}
    assert states[failed] == ("failed", [retried["responses"][0]["messageId"]])


def test_a_rerun_and_its_original_name_each_other_in_the_list_with_their_results(
    server: Server, workflow: tuple[str, list[Any]]
) -> None:
    url, _ = workflow
    header = {"Upstash-Forward-Upstash-Workflow-Sdk-Version": "1"}
    run_id = json.loads(send(server, "queue", f"/v2/trigger/{url}", "in", **header)["body"])[
        "workflowRunId"
    ]

    def listed() -> list[Any]:
        return list(server.ask("GET", "/fakes/queue/lists/runs")[1]["items"])

    wait_until(lambda: [run["state"] for run in listed()] == ["success"])
    # The run ends while the last delivery, from within which the application ends it, is in progress.
    step = server.ask("GET", f"/fakes/queue/lists/runs/{run_id}")[1]["steps"][0]
    changes = {"message": step["message"], "result": "other"}
    made = server.ask("POST", f"/fakes/queue/runs/{run_id}/rerun", changes)[1]["id"]
    wait_until(lambda: [run["state"] for run in listed()] == ["success", "success"])
    shown = [(run["id"], run["parent"], run["children"], run["result"]) for run in listed()]
    assert shown == [(made, run_id, [], "other+"), (run_id, None, [made], "in++")]
    # The rerun has the steps of the original, of which it has taken over the first.
    wait_until(lambda: [run["steps"] for run in listed()] == [2, 2])
    compared = server.ask("GET", f"/fakes/queue/lists/runs/{made}")[1]
    parts = [(part["name"], part["then"], part["now"]) for part in compared["compared"]]
    assert compared["compared_with"] == run_id
    assert parts == [
        ("input", "in", "in"), ("step 1", "in+", "other"), ("step 2", "in++", "other+"),
        ("result", "in++", "other+"),
    ]  # fmt: skip
    assert [part["taken"] for part in compared["compared"]] == ["", "goes on here", "", ""]
    assert [part["differs"] for part in compared["compared"]] == [False, True, True, True]
    messages = server.ask("GET", "/fakes/queue/lists/messages")[1]["items"]
    own = [view["step"] for view in messages if view["run"] == run_id]
    assert own == ["step 2", "step 1", ""]


def test_a_fault_names_the_calls_that_have_used_it_up(server: Server) -> None:
    fault = {"kind": "respond", "args": [503], "times": 2, "command": "SET"}
    assert server.ask("POST", "/fakes/kv_server/faults", fault)[1]["rows"] == []
    rows = [send(server, "kv_server", "/", [name, "a", "1"])["row"] for name in ("SET", "APPEND")]
    url = server.fake("kv_server")["env"]["REDIS_URL"]
    with redis.Redis.from_url(url) as client, pytest.raises(redis.RedisError):
        client.set("a", "2")
    (found,) = server.ask("GET", "/fakes/kv_server/faults")[1]
    assert (found["hits"], found["active"], found["rows"][0]) == (2, False, rows[0])
    used_up = server.ask("GET", f"/journal?after={found['rows'][1] - 1}&limit=1")[1][0]
    assert used_up["operation"] == "SET"
    assert used_up["actor"] != "console"


def report_steps(server: Server, *results: tuple[str, str, str]) -> str:
    """Start the run ``wfr_1`` and publish steps with these names, types and results, as a workflow
    does; return the first message of the run.
    """
    url = "http://127.0.0.1:9/flow"
    own = {"Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Url": url}
    first: str = json.loads(
        send(
            server, "queue", f"/v2/publish/{url}", "in", **own, **{"Upstash-Workflow-Init": "true"}
        )["body"]
    )["messageId"]
    for number, (name, kind, out) in enumerate(results, 1):
        step = {"stepId": number, "stepName": name, "stepType": kind, "concurrent": 1, "out": out}
        header = {"Upstash-Workflow-CallType": "step"}
        send(server, "queue", f"/v2/publish/{url}", step, **own, **header)
    wait_until(lambda: len(server.ask("GET", "/fakes/queue/attempts")[1]) >= len(results))
    return first


def test_the_input_of_a_step_is_what_the_last_step_with_a_result_returned(server: Server) -> None:
    results = (
        ("void", "Run", "null"), ("wait for stock", "SleepFor", "null"), ("charge", "Run", "5"),
        ("wait for payment", "SleepFor", "null"), ("until noon", "SleepUntil", "null"),
        ("thank", "Run", "ok"),
    )  # fmt: skip
    first = report_steps(server, *results)
    run = server.ask("GET", "/fakes/queue/lists/runs/wfr_1")[1]
    steps = {step["name"]: step for step in run["steps"]}
    charge = steps["charge"]["message"]
    assert [steps[name]["input_of"] for name, _, _ in results] == [first] * 3 + [charge] * 3


@pytest.mark.parametrize(
    ("results", "shown"),
    [
        (("x" * 90, "-2500", "ok"), f"c → ok, b → -2500, a → {'x' * 41}…"),
        (("x" * 90, "y" * 90, "z" * 90), f"c → {'z' * 16}…, b → {'y' * 16}…, a → {'x' * 16}…"),
        (("in", "1", "2"), "c → 2, b → 1, a → in"),
    ],
)
def test_the_last_result_is_first_and_a_long_one_leaves_room_for_the_others(
    server: Server, results: tuple[str, ...], shown: str
) -> None:
    report_steps(server, *((name, "Run", out) for name, out in zip("abc", results, strict=True)))
    (run,) = server.ask("GET", "/fakes/queue/lists/runs")[1]["items"]
    assert run["results"] == shown
