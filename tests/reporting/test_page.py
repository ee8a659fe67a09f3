"""The HTML timeline: whole in itself, masked, escaped, and right in a real browser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.page import file_name, page, write
from pytest_fakecloud.reporting.report import report_of

from ..harness import Run

CHROMIUM = shutil.which("chromium")
EVIL = "<script>document.title='owned'</script>&\"'"


def a_page(cloud: Cloud, **given: str) -> str:
    return page(cloud, report_of(cloud, **given))  # type: ignore[arg-type]


def written(cloud: Cloud, folder: Path, **given: str) -> Path:
    return write(cloud, folder, report_of(cloud, **given))  # type: ignore[arg-type]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def fill(cloud: Cloud) -> None:
    """A checkout: a session, an order, a reminder that needs three attempts."""
    kv = cloud.kv_server()
    broker = cloud.broker(topics={"orders": 2})
    queue, capture = cloud.queue(), cloud.callback_capture()
    client = kv.client()
    client.set("session:1", '{"user": "ada"}', ex=1800)
    client.get("session:1")
    auth = (broker.username, broker.password)
    order = {"key": "ada", "value": "one book"}
    requests.post(f"{broker.url}/produce/orders", json=[order], auth=auth, timeout=5)
    requests.get(f"{broker.url}/consume/shop/worker-1/orders", auth=auth, timeout=5)
    with kv.faults.answer(503):
        httpx.get(f"{kv.url}/incr/orders", headers=kv.headers)
    queue.destinations.answers("https://shop.example.com/remind", 500, 200)
    queue.publish(
        "https://shop.example.com/remind",
        json={"order": 1},
        settings={"Upstash-Retry-Delay": "60000"},
        callback=capture.callback_url,
    )
    queue.run_until_idle()
    requests.get(f"{broker.url}/topix", auth=auth, timeout=5)


class Outline(HTMLParser):
    """What a page loads, and the text of its elements by class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        self.loads += [v for n in ("src", "href", "data") if (v := given.get(n))]
        if tag not in ("meta", "br"):
            self._open.append(given.get("class") or tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.texts.setdefault(self._open[-1], []).append(data)


def test_everything_stands_in_its_lane(cloud: Cloud) -> None:
    fill(cloud)
    outline = Outline(a_page(cloud, test="test_x.py::test_it", failure="AssertionError: no"))
    assert outline.texts["lane"] == [
        "time (UTC)", "client", "kv_server", "broker", "test", "queue", "shop.example.com",
        "callback_capture",
    ]  # fmt: skip
    assert 'SET session:1 {"user": "ada"} EX 1800' in outline.texts["what"]
    assert any(
        re.match(r"attempt 2 of msg_\w+ POST https://shop.example.com/remind", text)
        for text in outline.texts["what"]
    )
    assert outline.texts["fault"] == ["fault: answer 503"]
    assert outline.texts["note"][0].startswith("no route for it; nearest: GET /topics")
    assert any(
        text.startswith("[unrouted] broker got GET /topix") for text in outline.texts["short"]
    )
    assert outline.texts["day"] == ["2026-03-01"]


def test_the_page_is_whole_in_itself(cloud: Cloud) -> None:
    fill(cloud)
    text = a_page(cloud, test="test_x.py::test_it")
    outline = Outline(text)
    # Places within the page are all it refers to.
    assert [place for place in outline.loads if not place.startswith("#error-")] == []
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_nothing_of_a_test_becomes_markup(cloud: Cloud) -> None:
    kv = cloud.kv_server(name="<b>kv</b>")
    httpx.post(kv.url, json=["SET", EVIL, EVIL], headers={**kv.headers, "X-Evil": EVIL})
    httpx.get(f"{kv.url}/get/{EVIL.replace('/', '%2F')}", headers=kv.headers)
    text = a_page(cloud, test=f"test_x.py::test_it[{EVIL}]", failure=EVIL)
    outline = Outline(text)
    assert "script" not in outline.tags
    assert "b" not in outline.tags
    assert EVIL not in text


def test_a_page_can_be_written_whatever_was_said(cloud: Cloud, tmp_path: Path) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, content=rb'["SET","a","\ud800"]', headers=kv.headers)
    text = write(
        cloud, tmp_path, report_of(cloud, test="test_it", failure="AssertionError: \ud800")
    ).read_text(encoding="utf-8")
    assert text.count("\\ud800") == 2


def test_no_secret_is_on_the_page(cloud: Cloud) -> None:
    fill(cloud)
    handles: list[Any] = list(cloud.handles)
    kv, broker, queue, _ = handles
    httpx.get(f"{kv.url}/get/a?_token={kv.token}")
    httpx.post(kv.url, json=["SET", "mine", kv.token], headers=kv.headers)
    httpx.post(kv.url, json=["AUTH", "somebody", "theirs-alone"], headers=kv.headers)
    httpx.get(f"{queue.url}/v2/keys", headers=queue.headers)
    text = page(
        cloud, report_of(cloud, test="test", failure=f"AssertionError: {kv.token} is not right")
    )
    for secret in (
        kv.token, kv.read_only_token, queue.token, broker.password, "theirs-alone",
        queue.current_signing_key, queue.next_signing_key,
    ):  # fmt: skip
        assert secret not in text
    assert re.search(r"eyJ[\w-]+\.eyJ", text) is None


def test_bodies_are_there_in_full(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, json=["SET", "k", "x" * 5000], headers=kv.headers)
    httpx.post(kv.url, content=b"\xff\xfe" + b"y" * 30_000, headers=kv.headers)
    text = a_page(cloud, test="test")
    assert "x" * 5000 in text
    assert "… 10002 more bytes" in text


def test_file_names_are_safe_and_stay_apart(tmp_path: Path, cloud: Cloud) -> None:
    assert file_name("tests/test_a.py::test_it") == "tests-test_a.py-test_it"
    assert (
        file_name("tests/test_a.py::TestIt::test_it[1-a]") == "tests-test_a.py-TestIt-test_it-1-a"
    )
    assert file_name("../../etc/passwd") == "etc-passwd"
    parameters = ["a/b", "a:b", "a-b", "a b", "é", "ü", "", "x" * 300 + "1", "x" * 300 + "2", ".."]
    names = [file_name(f"test_x.py::test_it[{each}]") for each in parameters]
    assert len(set(names)) == len(parameters)
    assert max(map(len, names)) <= 150
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)
    path = write(
        cloud, tmp_path / "deep" / "folder", report_of(cloud, test="tests/test_a.py::test_it")
    )
    assert path == tmp_path / "deep" / "folder" / "tests-test_a.py-test_it.html"


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
    assert '<div class="below">' in index
    result.stdout.fnmatch_lines([f"timeline: *out/pages/{name}".replace("/", os.sep)])
    text = (pytester.path / "out" / "pages" / name).read_text(encoding="utf-8")
    assert "SET a 1" in text
    assert "assert good" in text


def test_the_page_opens_with_the_failure_and_the_way_to_the_first_error(cloud: Cloud) -> None:
    fill(cloud)
    text = a_page(cloud, test="test_x.py::test_it", failure="AssertionError: no")
    assert "<details open><summary>the failure</summary><pre>AssertionError: no</pre>" in text
    assert (
        '<a href="#error-1">the first of 3 errors</a>: client → kv_server INCR orders 503 '
        "Service Unavailable" in text
    )
    targets = re.findall(r'href="#(error-\d)">next error', text)
    assert targets == ["error-2", "error-3"]
    assert [name for name in ("error-1", *targets) if f'id="{name}"' not in text] == []


def test_retries_and_groups_are_drawn(cloud: Cloud) -> None:
    fill(cloud)
    figures = re.findall(
        r"<figure>.*?</figure>", a_page(cloud, test="test_x.py::test_it"), re.DOTALL
    )
    ladder, group = figures
    assert "https://shop.example.com/remind: 2 attempts in 1 m" in ladder
    at = [float(x) for x in re.findall(r'<circle class="\w+" cx="([\d.]+)"', ladder)]
    assert at == [16, 396]
    assert "2: 200 after 1 m" in ladder
    assert "group shop: 1 generation, 1 member" in group
    assert group.count("<rect") == 2


def test_a_ladder_is_to_scale(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.answers("https://a.example.com/", 500, 500, 200)
    queue.publish(
        "https://a.example.com/",
        retries=3,
        settings={"Upstash-Retry-Delay": "1000 * (1 + retried * 2)"},
    )
    queue.run_until_idle()
    text = a_page(cloud, test="test_x.py::test_it")
    first, second, third = (float(x) for x in re.findall(r'cx="([\d.]+)"', text))
    assert (third - second) / (second - first) == pytest.approx(3, abs=0.01)


def test_bodies_of_callbacks_are_decoded(cloud: Cloud) -> None:
    fill(cloud)
    text = a_page(cloud, test="test_x.py::test_it")
    assert "&quot;sourceBody&quot;: {\n    &quot;order&quot;: 1\n  }" in text


def test_a_page_without_errors_has_no_way_to_them(cloud: Cloud) -> None:
    cloud.kv_server().client().get("k")
    assert "error-1" not in a_page(cloud, test="test_x.py::test_it")


def test_junit_knows_the_page(run: Run, pytester: pytest.Pytester) -> None:
    run(
        "def test_it(kv_server):\n            assert kv_server.client().get('k')\n",
        "--fakecloud-report=pages",
        "--junitxml=junit.xml",
    )
    junit = (pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert re.search(r'<property name="fakecloud_timeline" value="[^"]*pages/[^"]*\.html"', junit)


# -- in a real browser -----------------------------------------------------------------------------


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _contrast(colour: str, paper: str) -> float:
    def luminance(text: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", text)[:3]]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.slow
def test_a_browser_shows_it_offline_in_light_and_dark(
    cloud: Cloud, browser: Any, tmp_path: Path
) -> None:
    fill(cloud)
    kv = cloud.handles[0]
    httpx.post(kv.url, json=["SET", EVIL, EVIL], headers=kv.headers)
    path = write(
        cloud,
        tmp_path,
        report_of(cloud, test="tests/test_shop.py::test_checkout", failure="AssertionError: no"),
    )
    papers = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(
            color_scheme=scheme, offline=True, viewport={"width": 1100, "height": 760}
        )
        tab = context.new_page()
        asked: list[str] = []
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        complaints: list[str] = []
        tab.on("console", lambda message, to=complaints: to.append(message.text))
        tab.goto(path.as_uri())
        assert asked == [path.as_uri()]
        assert tab.title() == "tests/test_shop.py::test_checkout"
        assert complaints == []

        def style(selector: str, name: str, tab: Any = tab) -> str:
            found: str = tab.locator(selector).first.evaluate(
                f"element => getComputedStyle(element).{name}"
            )
            return found

        paper = style("body", "backgroundColor")
        papers.add(paper)
        for selector in ("body", ".what", ".answer", ".failed .answer", ".fault", ".time", ".note"):
            assert _contrast(style(selector, "color"), paper) >= 4.5, selector

        # An arrow goes from the middle of one lane to the middle of the other.
        lanes = {lane.inner_text(): lane.bounding_box() for lane in tab.locator(".lane").all()}
        arrow = tab.locator(".arrow").first.bounding_box()
        client, target = lanes["client"], lanes["kv_server"]
        assert arrow["x"] == pytest.approx(client["x"] + client["width"] / 2, abs=2)
        assert arrow["x"] + arrow["width"] == pytest.approx(
            target["x"] + target["width"] / 2, abs=2
        )

        # Bodies unfold without a script.
        entry = tab.locator(".entry").first
        assert not entry.locator("pre").first.is_visible()
        entry.locator("summary").click()
        assert entry.locator("pre").first.is_visible()
        assert "Authorization: ***" in entry.locator("pre").first.inner_text()
        folder = os.environ.get("PYTEST_FAKECLOUD_SCREENSHOTS")
        if folder:
            entry.locator("summary").click()
            tab.mouse.move(0, 0)
            tab.screenshot(path=str(Path(folder) / f"timeline-{scheme}.png"))
        context.close()
    assert len(papers) == 2


def test_the_page_begins_with_the_words_of_the_failure(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    httpx.get(f"{kv.url}/get/k")
    failure = (
        "    def test_it():\n>       assert a == b\nE       assert 1 == 2\nE        +  where <1\n"
    )
    text = a_page(cloud, test="test_it", failure=failure)
    told = '<pre class="message">assert 1 == 2\n+  where &lt;1</pre>'
    assert told in text
    assert text.index(told) < text.index("where it failed") < text.index('href="#error-1"')
    assert "<details open" not in text
    # Of a failure without words of pytest's, all is shown.
    assert "<details open><summary>the failure</summary><pre>gone" in page(
        cloud, report_of(cloud, test="t", failure="gone")
    )


def test_calls_of_what_a_delivery_reached_begin_there(cloud: Cloud) -> None:
    queue, kv = cloud.queue(), cloud.kv_server()
    client = kv.client()
    queue.destinations.call("https://app.example.com/h", lambda request: client.get("k"))
    queue.publish("https://app.example.com/h")
    queue.run_until_idle()
    client.get("k")
    found = re.findall(r'<span class="ends">([^<]*)</span>', a_page(cloud, test="test_it"))
    assert found == [
        "test → queue", "queue → https://app.example.com/h", "https://app.example.com/h → kv_server",
        "client → kv_server",
    ]  # fmt: skip
