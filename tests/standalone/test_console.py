"""The console in a real browser, where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import pytest
import urllib3

from .conftest import Serve, Server, fetch

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield launched
        launched.close()


class Window:
    """A page that all tests of a module use, one after the other, and what went wrong in it."""

    SIZE: ClassVar[Any] = {"width": 1280, "height": 720}

    def __init__(self, browser: Any) -> None:
        # What a test evaluates here is not the page's own, and its policy would forbid it.
        self.page = browser.new_page(bypass_csp=True, viewport=self.SIZE)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("response", self._came)

    def _came(self, answer: Any) -> None:
        if answer.status >= 400:
            self.problems.append(f"{answer.status} {urlsplit(answer.url).path}")

    def leave(self) -> None:
        """Leave the console: what a test did to the page goes with it."""
        self.page.goto("about:blank")
        if self.page.viewport_size != self.SIZE:
            self.page.set_viewport_size(self.SIZE)
        self.page.emulate_media(color_scheme="light")


def go(opened: Any, server: Server) -> Any:
    """Load the console, and wait until it has drawn all that it draws by itself."""
    opened.goto(server.summary["console"])
    # Set by what it does last; a tab that is chosen before is drawn twice, with its forms.
    opened.wait_for_function("counted !== null")
    return opened


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Window]:
    window = Window(browser)
    yield window
    window.page.close()


@pytest.fixture
def page(window: Window, server: Server) -> Iterator[Any]:
    window.problems.clear()
    yield go(window.page, server)
    window.leave()
    assert window.problems == []


def handle(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(h for h in server.summary["handles"] if h["name"] == name)
    return found


def command(server: Server, *words: str) -> None:
    kv = handle(server, "kv_server")
    fetch("POST", kv["url"], json=list(words), headers=kv["headers"])


def test_the_timeline_is_live_and_can_be_filtered(page: Any, server: Server) -> None:
    command(server, "SET", "live", "1")
    page.wait_for_selector("#rows tr")
    command(server, "GET", "live")
    page.wait_for_function("document.querySelectorAll('#rows tr').length === 2")
    assert page.inner_text("#rows tr:first-child td:last-child").startswith('"1"')
    page.fill("input[type=search]", "nothing like this")
    page.wait_for_function("document.querySelectorAll('#rows tr').length === 0")
    assert "0 of 2" in page.inner_text("#count")


def test_each_call_is_shown_once(page: Any, server: Server) -> None:
    kv = handle(server, "kv_server")
    with urllib3.PoolManager(retries=False, timeout=20) as pool:
        for number in range(400):
            pool.request("POST", kv["url"], json=["SET", "a", str(number)], headers=kv["headers"])
            if number % 50 == 0:
                page.evaluate("refresh(); refresh(); 0")
    page.wait_for_function("rows.length >= 400 && rows.every((row) => row.done)")
    page.evaluate("refresh()")
    assert page.evaluate("rows.length") == 400
    assert page.evaluate("new Set(rows.map((row) => row.number)).size") == 400
    assert page.inner_text("#count") == "400 of 400"


def test_the_page_works_under_its_policy(browser: Any, server: Server) -> None:
    command(server, "SET", "a", "1")
    opened = browser.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    go(opened, server)
    for name in ("timeline", "overview", "kv_server", "vector_index", "queue", "broker"):
        opened.click(f"#tab-{name}")
        opened.wait_for_selector(f"#tab-{name}[aria-selected=true]")
    # Last, because another view takes the bars away as soon as it has come.
    opened.wait_for_selector(".bar", state="attached")
    opened.close()
    assert [text for text in said if "Content Security" in text or "Error" in text] == []


def test_a_call_that_takes_long_shows_its_answer_in_the_end(page: Any, server: Server) -> None:
    server.ask("POST", "/handles/kv_server/faults", {"kind": "delay", "args": [1], "times": 1})
    slow = threading.Thread(target=command, args=(server, "GET", "slow"))
    slow.start()
    answer = "document.querySelector('#rows tr:first-child td:last-child')?.innerText"
    page.wait_for_function(f"{answer}?.startsWith('open')")
    page.wait_for_function(f"{answer}?.startsWith('null')")
    slow.join()


def test_a_call_can_be_copied_as_curl(page: Any, server: Server) -> None:
    command(server, "SET", "it's", "1")
    page.wait_for_selector("#rows tr")
    curl = page.evaluate("curl(rows[0])")
    kv = handle(server, "kv_server")
    assert curl.startswith(f"curl -g -X POST '{kv['url']}/'")
    assert kv["headers"]["Authorization"] in curl
    assert "it'\\''s" in curl


def run(curl: str) -> bytes:
    """What a shell makes of a copied line."""
    done = subprocess.run(
        ["sh", "-c", f"{curl} -s --max-time 10"], capture_output=True, timeout=20, check=True
    )
    return done.stdout


@pytest.mark.skipif(
    os.name == "nt" or shutil.which("curl") is None, reason="wants a POSIX shell with curl"
)
def test_a_copied_line_sends_the_same_call_and_nothing_else(
    page: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = handle(server, "kv_server")
    secret = tmp_path / "secret"
    secret.write_text("of the user's own", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    fetch("POST", f"{kv['url']}/set/file", body=f"@{secret}", headers=kv["headers"])
    fetch("GET", f"{kv['url']}/set/a%5B1-9%5D/{{x,y}}[1]", headers=kv["headers"])
    parts = urlsplit(kv["url"])
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as sock:
        sock.sendall(b"X|touch`echo-owned` /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(1000)
    page.wait_for_function("rows.length === 3 && rows.every((row) => row.done)")
    lines = page.evaluate("rows.map(curl)")
    for name in ("file", "a[1-9]"):
        command(server, "DEL", name)
    for line in lines:
        run(line)
    keys = server.ask("GET", "/handles/kv_server/view")[1]["keys"]
    found = {one["key"]: one["value"] for one in keys}
    assert found == {"a[1-9]": "{x,y}[1]", "file": f"@{secret}"}
    assert "-X 'X|touch`echo-owned`'" in lines[2]
    assert "curl -g -I " in page.evaluate("curl({...rows[0], sent: 'HEAD /'})")


def test_what_a_copied_line_lacks_is_said(page: Any) -> None:
    sent = "POST /set/a\nHost: x\n\n"
    for body, text in [
        ("x\n… 5 more bytes", "longer than what was copied"),
        ("\ufffd", "no text"),
        ("***", "secret"),
    ]:
        assert text in page.evaluate("(sent) => lost({sent})", sent + body)
    assert page.evaluate("(sent) => lost({sent})", sent + "all of it") == ""


def test_nothing_of_the_fakes_becomes_markup(page: Any, server: Server) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">'"
    command(server, "SET", evil, evil, "EX", "60")
    server.ask("POST", "/handles", {"fixture": "kv_server", "settings": {"name": evil}})
    vector, queue = handle(server, "vector_index"), handle(server, "queue")
    fetch(
        "POST", f"{vector['url']}/upsert",
        json={"id": evil, "vector": [1, 2], "metadata": {evil: evil}}, headers=vector["headers"],
    )  # fmt: skip
    fetch("POST", f"{queue['url']}/v2/publish/http://127.0.0.1:9/{evil}", headers=queue["headers"])
    page.wait_for_function("document.querySelectorAll('#tabs [role=tab]').length === 7")
    for tab in page.query_selector_all("#tabs [role=tab]"):
        name = tab.inner_text()
        page.evaluate("(name) => select(name)", name)
        always = {"timeline": "#rows tr", "overview": "#environment > *"}
        page.wait_for_selector(always.get(name, "#data > *"), state="attached")
        if name in ("timeline", "kv_server", "vector_index"):
            assert "<img src=x" in page.inner_text("#view")
        assert page.query_selector("img") is None
    assert page.title() != "owned"
    server.ask("DELETE", f"/handles/{quote(evil, safe='')}")


def test_the_token_does_not_stay_in_the_address(page: Any, server: Server) -> None:
    assert server.token not in page.url


def test_keys_and_their_expiry_are_shown(page: Any, server: Server) -> None:
    command(server, "SET", "session:1", "ada", "EX", "1800")
    page.click("#tab-kv_server")
    page.wait_for_selector("#data td")
    assert page.inner_text("#data tbody").split("\t")[:4] == [
        "session:1", "string", "in 1800 s", "ada",
    ]  # fmt: skip


def test_the_clock_moves_by_its_buttons(page: Any, server: Server) -> None:
    page.click("[data-by='1h']")
    page.wait_for_function("document.getElementById('now').textContent.includes('01:00:00')")
    page.fill("#by", "90m")
    page.press("#by", "Enter")
    page.wait_for_function("document.getElementById('now').textContent.includes('02:30:00')")
    assert server.ask("GET", "/clock")[1]["now"] == "2026-01-01T02:30:00+00:00"
    page.click("#freeze")
    page.wait_for_function("document.getElementById('freeze').textContent === 'Freeze'")


def test_a_wrong_duration_is_said(page: Any, window: Window) -> None:
    page.fill("#by", "soon")
    page.click("#advance")
    page.wait_for_function(
        "document.getElementById('notice').textContent.includes('is not a duration')"
    )
    assert window.problems == ["400 /__control__/clock"]
    window.problems.clear()


def publish_to_nobody(server: Server) -> None:
    """A message that is given up at its first attempt."""
    queue = handle(server, "queue")
    fetch(
        "POST",
        f"{queue['url']}/v2/publish/http://127.0.0.1:9/gone",
        headers={**queue["headers"], "Upstash-Retries": "0"},
        body=b"x",
    )


def test_a_dead_letter_is_retried(page: Any, server: Server) -> None:
    publish_to_nobody(server)
    page.click("[data-by='1m']")
    page.click("#tab-queue")
    page.wait_for_selector("#view button:text('Retry')")
    page.click("#view button:text('Retry')")
    page.wait_for_function("document.querySelector('#data h2').textContent.startsWith('2 ')")


def test_vectors_are_plotted(page: Any, server: Server) -> None:
    index = handle(server, "vector_index")
    fetch(
        "POST",
        f"{index['url']}/upsert",
        json=[{"id": f"v{n}", "vector": [n, n % 3]} for n in range(5)],
        headers=index["headers"],
    )
    page.click("#tab-vector_index")
    page.wait_for_selector("svg circle.vector")
    assert page.locator("svg circle.vector").count() == 5


def test_tabs_work_from_the_keyboard(page: Any, server: Server) -> None:
    page.focus("#tab-timeline")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tab-overview[aria-selected=true]")
    assert page.evaluate("document.activeElement.id") == "tab-overview"

    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-queue"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-timeline"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.id") == "tab-timeline"


def test_a_fake_may_be_named_as_a_view_is(window: Window, serve: Serve) -> None:
    window.problems.clear()
    opened = go(window.page, serve("kv", "--kv", "name=timeline"))
    assert opened.locator("#tabs [role=tab]").all_inner_texts() == [
        "timeline",
        "overview",
        "timeline",
    ]
    opened.click("#tabs [role=tab] >> nth=2")
    opened.wait_for_selector("#acts")
    assert opened.locator("#tabs [aria-selected=true]").count() == 1
    opened.click("#tabs [role=tab] >> nth=0")
    opened.wait_for_selector("table#timeline")
    window.leave()
    assert window.problems == []


def test_what_has_the_focus_keeps_it_while_the_page_keeps_up(page: Any, server: Server) -> None:
    command(server, "SET", "first", "1")
    page.wait_for_selector("#rows tr")
    page.focus("#rows tr summary")
    command(server, "SET", "second", "1")
    page.wait_for_function("document.querySelectorAll('#rows tr').length === 2")
    focused = "document.activeElement.closest('tr')?.innerText ?? ''"
    assert "SET first" in page.evaluate(focused)
    publish_to_nobody(server)
    page.click("[data-by='1m']")
    page.click("#tab-queue")
    page.focus("#view button:text('Retry')")
    page.evaluate("document.activeElement.mark = true; refresh()")
    page.evaluate("refresh()")
    assert page.evaluate("document.activeElement.mark") is True
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#data h2').textContent.startsWith('2 ')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert _contrast(ink, paper) > 7
    assert (_luminance(paper) < _luminance(ink)) == (scheme == "dark")


def _contrast(first: str, second: str) -> float:
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_view_that_the_page_has_no_drawing_for_is_shown_as_tables(page: Any) -> None:
    shown = page.evaluate(
        """() => {
            const place = document.createElement("div");
            const view = {name: "toy", service: "toy", fixture: "toy", count: 2,
                          notes: [{text: "<b>one</b>"}, {text: "two", at: 5}], words: ["x"]};
            place.append(...plain(view));
            return [...place.querySelectorAll("p, h2, th, td")].map((one) => one.textContent);
        }"""
    )
    assert shown == [
        "count: 2", "notes", "text", "at", "<b>one</b>", "", "two", "5", "words", "value", "x",
    ]  # fmt: skip
    assert page.evaluate("plain({name: 'toy', service: 'toy', fixture: 'toy'})[0].textContent") == (
        "nothing to show"
    )
