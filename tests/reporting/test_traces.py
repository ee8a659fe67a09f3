"""Test trace contexts: the header ``traceparent`` in the journal, in reports and in deliveries."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from pytest_fakecloud import Cloud, DeliveredRequest
from pytest_fakecloud.core.traces import trace_parent
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.report import report_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
TRACED = {"traceparent": HEADER}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T12:00:00Z", delivery="driven") as cloud:
        yield cloud


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        f" {HEADER}\t",
        f"00-{TRACE}-{SPAN}-00",
        f"cc-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-what-the-future-adds",
    ],
)
def test_valid_headers(header: str) -> None:
    assert trace_parent(header) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-1",
        HEADER.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-0",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"{HEADER}\n",
    ],
)
def test_invalid_headers_are_ignored(header: str | None) -> None:
    assert trace_parent(header) is None


def test_calls_are_found_by_trace(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    for key, headers in (("a", TRACED), ("b", {"Traceparent": "00-1"}), ("c", {})):
        httpx.get(f"{kv.url}/get/{key}", headers={**kv.headers, **headers})
    assert [call.trace_id for call in cloud.journal.calls()] == [TRACE, None, None]
    assert [call.path for call in cloud.journal.calls(trace_id=TRACE)] == ["/get/a"]
    assert len(kv.journal.calls(trace_id="4bf92f35*")) == 1
    with pytest.raises(AssertionError, match="trace_id"):
        kv.journal.assert_called("GET", trace_id="0" * 32)


def test_a_report_shows_the_traces_of_rows(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    other = f"00-{'a' * 32}-{SPAN}-01"
    values = [("1", HEADER)] * 4 + [("2", HEADER)] + [("3", ""), ("3", other)] * 2
    for value, header in values:
        httpx.get(f"{kv.url}/set/k/{value}", headers={**kv.headers, "traceparent": header})
    lines = [line for line in section(cloud).splitlines() if "SET k" in line]
    # Equal calls are one line, which has no trace if theirs differ.
    assert [line.partition("SET ")[2][:3] for line in lines] == ["k 1", "k 2", "k 3"]
    assert [line.partition("<-- ")[2] for line in lines] == [
        "OK  trace 4bf92f35…",
        'OK (was "1")  trace 4bf92f35…',
        'OK (was "2")',
    ]
    rows = as_json(report_of(cloud))["rows"]
    assert [row["trace"] for row in rows] == [TRACE] * 5 + [None, "a" * 32] * 2


def test_a_report_without_traces_shows_none(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    httpx.get(f"{kv.url}/get/k", headers=kv.headers)
    assert "trace" not in section(cloud)


def test_a_delivery_has_the_header_that_the_publish_forwards(cloud: Cloud) -> None:
    queue, received = cloud.queue(), dict[str, str | None]()

    def handle(request: DeliveredRequest) -> None:
        received[request.path] = request.headers.get("traceparent")

    queue.destinations.call("https://app.example", handle)
    for path, headers in (
        ("plain", TRACED),
        ("prefix", {"Upstash-Forward-Traceparent": HEADER}),
        ("all", {**TRACED, "Upstash-Header-Forward": "true"}),
    ):
        url = f"{queue.url}/v2/publish/https://app.example/{path}"
        httpx.post(url, headers={**queue.headers, **headers}).raise_for_status()
    queue.run_until_idle()
    assert received == {"/plain": None, "/prefix": HEADER, "/all": HEADER}
    rows = as_json(report_of(cloud))["rows"]
    traces = [(row["kind"], row["trace"]) for row in rows if row["kind"] in ("call", "delivery")]
    assert sorted(traces, key=str) == sorted(
        [("call", TRACE), ("call", None), ("call", TRACE),
         ("delivery", None), ("delivery", TRACE), ("delivery", TRACE)], key=str,
    )  # fmt: skip
