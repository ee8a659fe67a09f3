"""Test ``--fakecloud-otlp``: the spans of tests, in a file and at a collector."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from pytest_fakecloud import ContractError
from pytest_fakecloud.pytest_run.otlp import target_of

from ..harness import QUIET, Run, run

__all__ = ["run"]

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TEST = f"""
    import httpx
    import pytest

    TRACED = {{"traceparent": "00-{TRACE}-{SPAN}-01"}}

    NOON = {{"now": "2026-01-01T12:00:00Z", "clock": "frozen"}}

    @pytest.mark.fakecloud(**NOON, broker={{"topics": {{"orders": 1}}}})
    def test_calls(kv_server, vector_index, broker, queue):
        def handler(request):
            httpx.post(kv_server.url, json=["INCR", "handled"], headers=kv_server.headers)
            return 503 if request.headers["upstash-retried"] == "0" else 200

        queue.destinations.call("https://app.example", handler)
        httpx.post(f"{{kv_server.url}}/pipeline", json=[["SET", "k", "v"], ["GET", "k"]],
                   headers=kv_server.headers)
        httpx.get(f"{{kv_server.url}}/get/k?_token={{kv_server.token}}", headers=TRACED)
        httpx.post(f"{{vector_index.url}}/upsert/ns", json={{"id": "1", "vector": [1, 0]}},
                   headers=vector_index.headers)
        httpx.get(f"{{broker.url}}/produce/orders/hello", headers=broker.headers)
        with kv_server.faults.drop():
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"{{kv_server.url}}/get/k", headers=kv_server.headers)
        httpx.post(f"{{queue.url}}/v2/publish/https://app.example/x?token=secret", content="hi",
                   headers=queue.headers)
        queue.run_until_idle()

    def test_fails(kv_server):
        kv_server.client().set("k", "v")
        assert False

    def test_without_fakes():
        pass
"""
Spans = dict[str, list[dict[str, Any]]]


def spans_of(trace: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each span with the name of its service; its attributes are a dictionary."""
    for resource in trace["resourceSpans"]:
        (service,) = resource["resource"]["attributes"]
        assert service["key"] == "service.name"
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["attributes"] = {
                    attribute["key"]: value
                    for attribute in span["attributes"]
                    for value in attribute["value"].values()
                }
                yield service["value"]["stringValue"], span


def by_name(trace: dict[str, Any]) -> Spans:
    spans: Spans = {}
    for service, span in spans_of(trace):
        spans.setdefault(f"{service} {span['name']}", []).append(span)
    return spans


def test_every_test_is_a_trace(run: Run, pytester: pytest.Pytester) -> None:
    file = pytester.path / "folder" / "traces.jsonl"
    run(TEST, "--fakecloud-otlp=folder/traces.jsonl").assert_outcomes(passed=2, failed=1)
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert os.name == "nt" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in file.read_text()
    spans = by_name(first)
    (root,) = spans.pop("pytest test_every_test_is_a_trace.py::test_calls")
    assert root["attributes"]["test.case.result.status"] == "pass"
    assert ("parentSpanId" in root, "status" in root, root["kind"]) == (False, False, 1)
    everything = [span for _, span in spans_of(json.loads(file.read_text().splitlines()[0]))]
    assert len({span["spanId"] for span in everything}) == len(everything)
    for span in everything:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    (pipeline,) = spans["kv_server pipeline"]
    assert (pipeline["traceId"], pipeline["parentSpanId"]) == (root["traceId"], root["spanId"])
    assert pipeline["attributes"].items() >= {
        "http.request.method": "POST", "url.path": "/pipeline", "http.response.status_code": "200",
        "db.system.name": "redis", "db.operation.name": "PIPELINE", "db.operation.batch.size": "2",
    }.items()  # fmt: skip
    traced, dropped = spans["kv_server GET"]
    assert (traced["traceId"], traced["parentSpanId"]) == (TRACE, SPAN)
    assert traced["links"] == [{"traceId": root["traceId"], "spanId": root["spanId"]}]
    assert (dropped["status"], dropped["attributes"]["error.type"]) == ({"code": 2}, "dropped")
    assert [event["name"] for event in dropped["events"]] == ["fakecloud.fault"]
    (upsert,) = spans["vector_index upsert"]
    assert (upsert["attributes"]["db.namespace"], upsert["kind"]) == ("ns", 2)
    (produce,) = spans["broker produce"]
    assert produce["attributes"].items() >= {
        "messaging.system": "kafka", "messaging.operation.name": "produce",
        "messaging.destination.name": "orders",
    }.items()  # fmt: skip
    (publish,) = spans["queue publish"]
    deliveries = spans["queue deliver app.example"]
    assert [span["parentSpanId"] for span in deliveries] == [publish["spanId"]] * 2
    assert [span.get("status") for span in deliveries] == [{"code": 2}, None]
    assert [span["attributes"].get("http.request.resend_count") for span in deliveries] == [
        None,
        "1",
    ]
    assert {span["attributes"]["url.full"] for span in deliveries} == {"https://app.example/x"}
    handled = spans["kv_server INCR"]
    assert [span["parentSpanId"] for span in handled] == [span["spanId"] for span in deliveries]
    # Time is frozen, but the spans have an order.
    starts = [
        int(span["startTimeUnixNano"]) for span in (pipeline, traced, upsert, produce, dropped)
    ]
    assert starts == sorted(set(starts))
    assert starts[0] // 1_000_000 == 1767268800000
    ((_, failed), (_, call)) = spans_of(second)
    assert failed["attributes"]["test.case.result.status"] == "fail"
    assert (failed["status"], call["parentSpanId"]) == ({"code": 2}, failed["spanId"])


def test_traces_are_sent_to_a_collector(run: Run, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/traces", method="POST").respond_with_json({})
    run(TEST, f"--fakecloud-otlp={httpserver.url_for('/')}").assert_outcomes(passed=2, failed=1)
    requests = [request for request, _ in httpserver.log]
    assert [request.content_type for request in requests] == ["application/json"] * 2
    names = [next(spans_of(json.loads(request.data)))[1]["name"] for request in requests]
    assert [name.partition("::")[2] for name in names] == ["test_calls", "test_fails"]


@pytest.mark.parametrize("status", [503, None])
def test_a_lost_trace_is_a_warning(run: Run, httpserver: HTTPServer, status: int | None) -> None:
    httpserver.expect_request("/own/path").respond_with_data(status=status or 200)
    url = httpserver.url_for("/own/path")
    if status is None:
        httpserver.stop()
    result = run("def test_one(kv_server):\n    pass\n", f"--fakecloud-otlp={url}")
    result.assert_outcomes(passed=1, warnings=1)
    reason = (
        "no collector responds at" if status is None else f"the collector at {url} returned 503"
    )
    result.stdout.fnmatch_lines([f"*--fakecloud-otlp: a trace is lost*{reason}*"])


def test_a_new_run_begins_a_new_file(run: Run, pytester: pytest.Pytester) -> None:
    for _ in range(2):
        run("def test_one(kv_server):\n    pass\n", "--fakecloud-otlp=traces.jsonl")
    assert len((pytester.path / "traces.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("ftp://127.0.0.1", "*is not the URL of a collector: pass a URL such as*"),
        ("http://[", "*is not a URL*"),
        (".", "*--fakecloud-otlp: cannot write *"),
    ],
)
def test_invalid_values_end_the_run(run: Run, value: str, error: str) -> None:
    result = run("def test_one(kv_server):\n    pass\n", f"--fakecloud-otlp={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([error])


def test_targets() -> None:
    folder = Path("/folder")
    assert target_of("http://host:4318", folder).url == "http://host:4318/v1/traces"
    assert target_of("https://host/", folder).url == "https://host/v1/traces"
    assert target_of("https://host/a/b?c=d", folder).url == "https://host/a/b?c=d"
    assert target_of("a.json", folder) == ("", folder / "a.json")
    with pytest.raises(ContractError, match="collector"):
        target_of("http:///v1", folder)


def test_without_the_option_nothing_of_it_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_one(kv_server):
            kv_server.client().get("k")

        def test_two(kv_server):
            assert "pytest_fakecloud.pytest_run.otlp" not in sys.modules
    """)
    pytester.runpytest_subprocess(*QUIET).assert_outcomes(passed=2)
