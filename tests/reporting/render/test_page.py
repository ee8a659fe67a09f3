"""The pages of failing tests: self-contained, masked, escaped, with an index."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.output_files import file_name, write_public
from pytest_fakecloud.process.applications import ServedRequest
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.page import page, write_index
from pytest_fakecloud.reporting.report import report_of

from ...harness import Run, quiet_but
from ..shown import deliver

EVIL = "<script>document.title='owned'</script>&\"'"
FAILURE = """\
    def test_checkout(shop):
        shop.checkout("ada", "one book")
>       assert shop.orders() == 1
E       assert 0 == 1

tests/test_shop.py:12: AssertionError"""


def a_page(cloud: Cloud, **options: str) -> str:
    return page(cloud, report_of(cloud, **options))  # type: ignore[arg-type]


def written(cloud: Cloud, folder: Path, **options: str) -> Path:
    report = report_of(cloud, **options)  # type: ignore[arg-type]
    return write_public(folder / f"{file_name(report.test)}.html", page(cloud, report))


def fill(cloud: Cloud) -> None:
    """Make the calls of a checkout: a session, an order, and a reminder that needs three attempts."""
    kv = cloud.kv_server()
    broker = cloud.broker(topics={"orders": 2})
    queue, capture = cloud.queue(), cloud.callback_capture()
    client = kv.client()
    client.set("session:1", '{"user": "ada"}', ex=1800)
    client.get("session:1")
    shop = broker.client()
    shop.post("/produce/orders", json=[{"key": "ada", "value": "one book"}])
    shop.get("/consume/shop/worker-1/orders")
    with kv.faults.respond(503):
        httpx.get(f"{kv.url}/incr/orders", headers=kv.headers)
    queue.destinations.respond("https://shop.example.com/remind", 500, 200)
    deliver(
        queue,
        "https://shop.example.com/remind",
        json={"order": 1},
        settings={"Upstash-Retry-Delay": "60000"},
        callback=capture.callback_url,
    )
    shop.get("/topix")


def data_of(text: str) -> Any:
    """Return the report that a page contains."""
    match = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL
    )
    assert match is not None
    return json.loads(match[1])


def test_the_page_contains_the_report_and_loads_nothing(cloud: Cloud) -> None:
    fill(cloud)
    report = report_of(cloud, test="test_x.py::test_it", failure="AssertionError: no")
    text = page(cloud, report)
    data = data_of(text)
    assert {**data, "states": None} == {**as_json(report), "states": None}
    assert "[unrouted] broker got GET /topix" in text[: text.index("<main>")]
    assert '"sourceBody":{"Base64":{"order":1}}' in text  # the body of a callback is decoded
    # The page loads nothing.
    head = text[: text.index('id="report"')]
    assert re.findall(r'(?:src|href)="([^#][^"]*)', head) == []
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_nothing_of_a_test_becomes_markup(cloud: Cloud) -> None:
    kv = cloud.kv_server(name="<b>kv</b>")
    httpx.post(kv.url, json=["SET", EVIL, EVIL], headers={**kv.headers, "X-Evil": EVIL})
    httpx.get(f"{kv.url}/get/{EVIL.replace('/', '%2F')}", headers=kv.headers)
    text = a_page(cloud, test=f"test_x.py::test_it[{EVIL}]", failure=EVIL)
    assert text.count("<script") == 2
    assert "<b>" not in text
    assert EVIL not in text


def test_a_page_can_be_written_whatever_was_said(cloud: Cloud, tmp_path: Path) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, content=rb'["SET","a","\ud800"]', headers=kv.headers)
    path = written(cloud, tmp_path, test="test_it", failure="AssertionError: \ud800")
    assert "AssertionError: \\ud800" in path.read_text(encoding="utf-8")


def test_no_secret_is_on_the_page(cloud: Cloud) -> None:
    fill(cloud)
    fakes: list[Any] = list(cloud.fakes())
    kv, broker, queue, _ = fakes
    httpx.get(f"{kv.url}/get/a?_token={kv.token}")
    kv.client().set("token", kv.token)
    httpx.post(kv.url, json=["SET", "mine", kv.token], headers=kv.headers)
    httpx.post(kv.url, json=["AUTH", "somebody", "theirs-alone"], headers=kv.headers)
    httpx.get(f"{queue.url}/v2/keys", headers=queue.headers)
    text = a_page(cloud, test="test", failure=f"AssertionError: {kv.token} is not right")
    for secret in (
        kv.token, kv.read_only_token, queue.token, broker.password, "theirs-alone",
        queue.current_signing_key, queue.next_signing_key,
    ):  # fmt: skip
        assert secret not in text
    assert re.search(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]", text) is None


def test_bodies_are_there_in_full(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, json=["SET", "k", "x" * 5000], headers=kv.headers)
    httpx.post(kv.url, content=b"\xff\xfe" + b"y" * 30_000, headers=kv.headers)
    text = a_page(cloud, test="test")
    assert "x" * 5000 in text
    assert data_of(text)["rows"][1]["request"]["cut"] > 30_000


def test_only_failing_tests_get_a_page_and_the_section_links_it(
    run: Run, pytester: pytest.Pytester
) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.parametrize("good", [True, False])
        def test_it(kv_server, good):
            kv_server.client().set("a", "1")
            assert good

        def test_without_fakes():
            assert 0
        """,
        "--fakecloud-report=out/pages",
    )
    result.assert_outcomes(passed=1, failed=2)
    pages = sorted(path.name for path in (pytester.path / "out" / "pages").iterdir())
    name = "test_only_failing_tests_get_a_page_and_the_section_links_it.py-test_it-False.html"
    assert pages == ["index.html", name, name.replace(".html", ".json")]
    index = (pytester.path / "out" / "pages" / "index.html").read_text(encoding="utf-8")
    assert f'href="{name}"' in index
    assert "test_it[False]</a>" in index
    assert "<br>" in index
    result.stdout.fnmatch_lines([f"timeline: *out/pages/{name}".replace("/", os.sep)])
    text = (pytester.path / "out" / "pages" / name).read_text(encoding="utf-8")
    assert "SET a 1" in text
    assert "assert good" in text


def test_junit_knows_the_page(run: Run, pytester: pytest.Pytester) -> None:
    run(
        "def test_it(kv_server):\n            assert kv_server.client().get('k')\n",
        "--fakecloud-report=pages",
        *quiet_but("junitxml"),
        "--junitxml=junit.xml",
        quiet=False,
    )
    junit = (pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert re.search(r'<property name="fakecloud_timeline" value="[^"]*pages/[^"]*\.html"', junit)


def test_the_index_has_the_error_the_statement_and_the_first_finding(
    cloud: Cloud, tmp_path: Path
) -> None:
    for name in "ab":
        path = written(cloud, tmp_path, test=f"test_{name}", failure="E   AssertionError: <1>")
        findings = [{"kind": "ttl_removed", "text": f"finding {number} <k>"} for number in (1, 2)]
        data = {
            "test": f"test_{name}",
            "failure": "E   assert <1>",
            "statement": {"text": "read k", "headline": "SET k <1>"},
            "findings": findings if name == "a" else [],
        }
        path.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "without.html").touch()
    index = write_index(tmp_path)
    assert index is not None
    items = re.findall("<li>(.*?)</li>", index.read_text(encoding="utf-8"))
    assert [re.sub("<.*?>", "|", item) for item in items] == [
        "|test_a|||assert &lt;1&gt;|||SET k &lt;1&gt;|||finding 1 &lt;k&gt;|",
        "|test_b|||assert &lt;1&gt;|||SET k &lt;1&gt;|",
        "|without|",
    ]


def test_a_folder_without_pages_gets_no_index(tmp_path: Path) -> None:
    assert write_index(tmp_path) is None


def test_every_delivery_has_its_request_and_answer(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.call("https://a.example.com/", lambda request: {"reports": 2})
    deliver(queue, "https://a.example.com/", json={"report": "sales"})
    report = report_of(cloud)
    row = as_json(report)["rows"][-1]
    assert (row["request"]["decoded"], row["response"]["decoded"]) == (
        {"report": "sales"}, {"reports": 2},
    )  # fmt: skip
    headers = dict(row["request"]["headers"])
    assert headers["Upstash-Retried"] == "0"
    assert re.fullmatch(r"eyJ[\w-]+\.eyJ[\w-]+\.\*\*\*", headers["Upstash-Signature"])
    # For a queue in another process, the report has only the event.
    report.lookups.exchanges.clear()
    row = as_json(report)["rows"][-1]
    assert row["request"]["missing"]
    assert row["response"]["missing"]


def test_a_reply_in_base64_is_decoded(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    headers = {**kv.headers, "Upstash-Encoding": "base64"}
    commands = [["SET", "a", "ä"], ["MGET", "a", "b"]]
    httpx.post(f"{kv.url}/pipeline", json=commands, headers=headers)
    row = as_json(report_of(cloud))["rows"][-1]
    assert row["response"]["body"] == '[{"result":"OK"},{"result":["w6Q=",null]}]'
    assert row["response"]["decoded"] == [{"result": "OK"}, {"result": ["ä", None]}]


def test_a_request_to_the_application_has_headers_and_a_status(cloud: Cloud) -> None:
    served = ServedRequest(1, 0, "GET /orders", "Flask", {}, 1, ended=2, status=429)
    served.headers = (("Authorization", "Bearer secret"), ("X-User", "ada"))
    report = report_of(cloud, served=[served])
    request, row = report.rows[0].source.request, as_json(report)["rows"][0]
    assert request is not None
    assert request.headers[0] == ("Authorization", "***")
    assert row["request"]["headers"] == [["Authorization", "***"], ["X-User", "ada"]]
    assert (row["response"]["line"], row["response"]["missing"]) == ("429", True)
    served.answer, served.answer_type = b'{"limit": 2}', "application/json"
    response = as_json(report_of(cloud, served=[served]))["rows"][0]["response"]
    assert (response["decoded"], "missing" in response) == ({"limit": 2}, False)


def test_hints_and_the_log_are_on_the_page(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        """
        import logging

        def test_limit(fakecloud_env, kv_server):
            logging.getLogger("app").warning("counting in memory: %s", kv_server.token)
            assert 0
        """,
        "--fakecloud-report=timelines",
    )
    hint = (
        "no fake received a request; the application may use a fake that the test does not request"
    )
    assert hint in result.stdout.str()
    [shown] = [file.read_text("utf-8") for file in pytester.path.glob("timelines/*limit.html")]
    assert hint in shown
    assert "counting in memory: ***" in shown
