"""The console in a real browser, where one is installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import pytest
import redis
import urllib3

from ..harness import together
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


READY = "html[data-ready]"


class Window:
    """A page that the tests of a module share, and the errors that occurred in it."""

    SIZE: ClassVar[Any] = {"width": 1280, "height": 720}

    def __init__(self, browser: Any) -> None:
        # Tests evaluate scripts, which the page's policy forbids.
        self.page = browser.new_page(bypass_csp=True, viewport=self.SIZE)
        self.violations: list[str] = []
        self.page.on("pageerror", lambda error: self.violations.append(error.stack or str(error)))
        self.page.on("response", self._came)

    def _came(self, answer: Any) -> None:
        # The console asks whether an item exists before it writes over it.
        is_missing = answer.status == 404 and "/lists/" in answer.url
        if answer.status >= 400 and not is_missing:
            self.violations.append(f"{answer.status} {urlsplit(answer.url).path}")

    def show(self, server: Server) -> None:
        """Load the console of a server, without the state that a test has left in the page."""
        if self.page.viewport_size != self.SIZE:
            self.page.set_viewport_size(self.SIZE)
        self.page.emulate_media(color_scheme="light")
        if urlsplit(self.page.url).netloc == urlsplit(server.url).netloc:
            # A third cheaper than another page in between, and the browser keeps the token.
            self.page.evaluate("history.replaceState(null, '', '/')")
            self.page.reload(wait_until="commit")
            # The page of the last test may have asked for what this one has reset.
            self.violations.clear()
            self.page.wait_for_selector(READY, state="attached")
        else:
            go(self.page, server)


def go(opened: Any, server: Server) -> Any:
    """Load the console, and wait until it shows its first page."""
    opened.goto(server.console)
    opened.wait_for_selector(READY, state="attached")
    return opened


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Window]:
    window = Window(browser)
    yield window
    window.page.close()


@pytest.fixture
def page(window: Window, server: Server) -> Iterator[Any]:
    window.violations.clear()
    window.show(server)
    yield window.page
    window.page.unroute_all()
    assert window.violations == []


def at(page: Any, place: str, selector: str = "#view h1, #view .list") -> None:
    """Go to a place of the console, and wait until it shows what the selector names."""
    page.evaluate("(place) => { location.hash = '#/' + place; }", place)
    page.locator(selector).first.wait_for(state="attached")


def fake(server: Server, name: str) -> dict[str, Any]:
    summary: dict[str, Any] = next(h for h in server.summary["fakes"] if h["name"] == name)
    return summary


def command(server: Server, *words: str) -> None:
    kv = fake(server, "kv_server")
    fetch("POST", kv["url"], json=list(words), headers=kv["headers"])


def sent(server: Server, name: str, target: str = "/", body: Any = "", **headers: str) -> Any:
    wire_headers = {key.replace("_", "-"): value for key, value in headers.items()}
    status, answer = server.ask(
        "POST", f"/fakes/{name}/requests", {"target": target, "body": body, "headers": wire_headers}
    )
    assert (status, answer["status"] < 300) == (200, True), answer
    return json.loads(answer["body"])


def holds(page: Any, expression: str, **options: Any) -> None:
    """Wait until an expression of the page is true."""
    page.wait_for_function(expression, **options)


LINES = "document.querySelectorAll('.trace-row').length"
COUNT = "document.querySelector('.trace-tools output').textContent"
SEARCH = "input[type=search]"
IN_JOURNAL = "(await import('/console/journal.js'))"
"""The module of the page that holds what happened."""


# -- where a person is -------------------------------------------------------------------------------


def test_the_page_to_connect_says_when_requests_arrive(page: Any, server: Server) -> None:
    at(page, "connect", ".banner")
    assert page.inner_text("h1") == "Connect your application"
    assert "No requests yet" in page.inner_text(".banner")
    command(server, "SET", "first", "1")
    page.locator(".banner", has_text="Requests arrive").wait_for()
    page.click(".banner a")
    page.locator(".trace-row", has_text="SET first").wait_for()


@together
@pytest.mark.parametrize("language", ["curl", "JavaScript", "Python", "Go"])
def test_a_first_request_is_there_in_each_language(
    page: Any, server: Server, language: str
) -> None:
    at(page, "connect", ".choice button")
    for name in ("kv_server", "vector_index", "broker", "queue"):
        page.click(f".choice button:has-text('· {name}')")
        page.click(f".choice button:text-is('{language}')")
        shown = page.inner_text("pre[aria-label='first request']")
        own = fake(server, name)["url"] if language in ("curl", "Go") else ""
        assert own in shown
        assert len(shown) > 60


def test_every_item_has_an_address_that_back_reload_and_another_tab_keep(
    page: Any, server: Server, browser: Any
) -> None:
    command(server, "SET", "user:1/ä", "ada")
    at(page, "fake/kv_server/keys", "table.rows")
    page.click("table.rows a")
    page.locator(".detail h2", has_text="user:1/ä").wait_for()
    address = page.url
    assert address.endswith("#/fake/kv_server/keys/user%3A1%2F%C3%A4")
    assert server.token not in address
    page.go_back()
    page.locator(".detail").wait_for(state="hidden")
    page.go_forward()
    page.locator(".detail h2", has_text="user:1/ä").wait_for()
    page.reload()
    page.locator(".detail h2", has_text="user:1/ä").wait_for()
    # The browser keeps the token for its other tabs.
    with page.context.expect_page() as opened:
        page.evaluate("window.open('about:blank') && 0")
    second = opened.value
    second.goto(address)
    second.locator(".detail h2", has_text="user:1/ä").wait_for()
    second.close()


def test_services_have_the_names_that_people_know(page: Any, server: Server) -> None:
    shown = {
        "kv_server": "Upstash Redis", "vector_index": "Upstash Vector", "broker": "Kafka REST",
        "queue": "QStash, Workflow",
    }  # fmt: skip
    at(page, "connect", "#view dt")
    for name, product in shown.items():
        assert page.inner_text(f"#nav a[data-key='fake/{name}']").split("\n") == [name, product]
        assert page.locator(f"#view dt:has-text('{product}'):has-text('{name}')").is_visible()
    for name, product in shown.items():
        at(page, f"fake/{name}", f"h1:has-text('{product}')")
        holds(page, f"document.title === '{name} {product} · fakecloud'")
    page.set_viewport_size({"width": 390, "height": 800})
    at(page, "overview", ".overview section")
    entries = [page.inner_text(f"#nav a[data-key='fake/{name}']").strip() for name in shown]
    assert entries == list(shown)
    # The strip of pages unfolds until one is chosen.
    entry = """document.querySelector("#nav [data-key='fake/queue']")"""
    in_sight = f"{entry}.getBoundingClientRect().right <= innerWidth"
    holds(page, f"!({in_sight})")
    page.check("#all-pages")
    holds(page, in_sight)
    page.click("#nav a[data-key='fake/queue']")
    page.locator("h1:has-text('QStash')").wait_for(state="attached")
    assert not page.is_checked("#all-pages")
    page.set_viewport_size({"width": 1280, "height": 720})
    assert not page.is_visible("#all-pages")
    at(page, "fake/queue", "h1:has-text('QStash')")
    tops = page.eval_on_selector_all(".subtabs a", "(all) => all.map((one) => one.offsetTop)")
    assert (len(tops), len(set(tops))) == (11, 1)


def test_the_last_address_wins_while_a_page_is_loaded(page: Any, server: Server) -> None:
    command(server, "SET", "a", "1")
    page.evaluate(
        """async () => {
            location.hash = "#/fake/kv_server/keys";
            await new Promise((done) => addEventListener("hashchange", done, {once: true}));
            location.hash = "#/fake/kv_server/keys/a";
        }"""
    )
    page.locator(".detail h2:text-is('a')").wait_for()


def test_a_printed_address_signs_one_browser_in_once(browser: Any, serve: Serve) -> None:
    own = serve("kv")
    address = own.summary["console"]
    assert own.token not in address
    first, second = browser.new_page(), browser.new_page()
    for opened in (first, first, second):
        opened.goto("about:blank")
        opened.goto(address)
        opened.locator("h1, #token").first.wait_for()
        assert "code" not in opened.url
    assert first.inner_text("h1") == "Overview"
    assert second.locator("#token").is_visible()
    first.close()
    second.close()


def test_a_console_without_a_token_asks_for_it(browser: Any, server: Server) -> None:
    opened = browser.new_page()
    opened.goto(server.url + "/#/fake/kv_server/keys")
    opened.fill("#token-input", "wrong")
    opened.keyboard.press("Enter")
    opened.locator("#token .bad", has_text="rejects this token").wait_for()
    opened.fill("#token-input", server.token)
    opened.keyboard.press("Enter")
    opened.locator(".list").wait_for()
    assert opened.url == server.url + "/#/fake/kv_server/keys"
    opened.close()


# Objects of JavaScript inherit `constructor` and `__proto__`.
@together
@pytest.mark.parametrize("name", ["gone", "constructor", "__proto__", "toString"])
def test_an_unknown_address_is_named_beside_links_to_what_exists(page: Any, name: str) -> None:
    at(page, f"fake/{name}/keys", f".empty h2:text-is('There is no fake named {name}.')")
    page.click(".empty a:text-is('kv_server')")
    page.locator("[aria-label='parts of kv_server']").wait_for()
    at(page, f"activity?status={name}", "h1:text-is('Activity')")
    assert page.inner_text("#notice") == ""
    at(page, name, f".empty h2:text-is('The console has no page {name}.')")
    at(page, f"fake/kv_server/{name}", f".empty h2:text-is('kv_server has no tab {name}.')")
    page.click(".empty a:text-is('Keys')")
    page.locator(".detail, .empty h2, table.rows").first.wait_for()
    at(page, "fake/kv_server/keys/gone", ".detail :text('There is no key gone.')")


def test_a_stopped_server_is_said_in_words_and_found_again(window: Window, serve: Serve) -> None:
    other = serve("kv", "--control-token", "chosen")
    for number in range(3):
        command(other, "SET", f"before:{number}", "1")
    window.show(other)
    opened = window.page
    at(opened, "activity", ".trace-row")
    opened.click(".trace-row >> nth=1")
    holds(opened, "location.hash === '#/activity/2'")
    assert opened.is_hidden("#lost")
    other.process.kill()
    other.process.wait(10)
    opened.locator("#lost", has_text="does not answer. It was last seen at").wait_for()
    assert other.url.removeprefix("http://") in opened.inner_text("#lost")
    again = serve("kv", "--control-token", "chosen", "--control-port", other.url.rpartition(":")[2])
    opened.locator("#lost").wait_for(state="hidden", timeout=20_000)
    opened.locator("#notice", has_text="The server was restarted.").wait_for()
    for number in range(2):
        command(again, "SET", f"after:{number}", "1")
    # The details that were open are not those of the new row with that number.
    opened.locator(".trace-row", has_text="SET after:1").wait_for()
    assert opened.locator(".trace-row").count() == 2
    assert opened.is_hidden(".trace-pane")
    assert opened.evaluate("location.hash") == "#/activity"


# -- activity ----------------------------------------------------------------------------------------


def test_the_activity_is_live_and_filtered(page: Any, server: Server) -> None:
    at(page, "activity")
    page.locator(".empty", has_text="No requests yet.").wait_for()
    command(server, "SET", "live", "1")
    command(server, "GET", "live")
    command(server, "INCR")
    holds(page, f"{LINES} === 3")
    page.select_option("select[aria-label=Status]", "failed")
    holds(page, f"{LINES} === 1 && location.hash === '#/activity?status=failed'")
    assert page.inner_text(".trace-tools output") == "1 of 3 rows"
    page.select_option("select[aria-label=Status]", "")
    page.fill(SEARCH, "set live")
    holds(page, f"{LINES} === 1 && location.hash === '#/activity?search=set+live'")
    page.fill(SEARCH, "nothing like this")
    page.locator(".trace-empty", has_text="No row matches the filters.").wait_for()
    holds(page, "location.hash.includes('nothing')")
    page.reload()
    page.locator(".trace-empty", has_text="No row matches the filters.").wait_for()


def test_a_paused_activity_counts_what_is_new(page: Any, server: Server) -> None:
    command(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    page.click("button:text-is('Pause')")
    command(server, "SET", "b", "1")
    page.click("button:has-text('Resume'):has(.many:text-is('1'))")
    holds(page, f"{LINES} === 2")


def test_each_call_is_shown_once(page: Any, server: Server) -> None:
    at(page, "activity")
    kv = fake(server, "kv_server")
    with urllib3.PoolManager(retries=False, timeout=20) as pool:
        for number in range(400):
            pool.request("POST", kv["url"], json=["SET", "a", str(number)], headers=kv["headers"])
            if number % 50 == 0:
                page.evaluate(f"async () => {{ {IN_JOURNAL}.catchUp(); {IN_JOURNAL}.catchUp(); }}")
    holds(page, f"{COUNT} === '400 rows'")
    numbers = page.evaluate(f"async () => {IN_JOURNAL}.entries.list.map((row) => row.number)")
    assert len(set(numbers)) == len(numbers) == 400


def test_the_page_works_under_its_policy(browser: Any, server: Server) -> None:
    command(server, "SET", "a", "1")
    opened = browser.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    go(opened, server)
    for place in ("connect", "time", "fake/vector_index", "fake/broker", "fake/queue", "activity"):
        opened.click(f"#nav a[data-key='{place}']")
        opened.locator(f"#nav a[data-key='{place}'][aria-current=page]").wait_for()
    opened.locator(".trace-row").first.wait_for()
    opened.close()
    assert [text for text in said if "Content Security" in text or "Error" in text] == []


def test_a_call_that_takes_long_shows_its_answer_in_the_end(page: Any, server: Server) -> None:
    at(page, "activity")
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "delay", "args": [1], "times": 1})
    slow = threading.Thread(target=command, args=(server, "GET", "slow"))
    slow.start()
    page.locator(".trace-answer", has_text="open").wait_for()
    page.locator(".trace-answer", has_text="null").wait_for()
    slow.join()


def test_details_on_a_phone_are_closed_by_each_way_and_the_list_stays(
    page: Any, server: Server
) -> None:
    for number in range(40):
        command(server, "SET", f"key:{number}", "1")
    page.set_viewport_size({"width": 390, "height": 800})
    at(page, "activity", ".trace-row")
    page.evaluate("scrollTo(0, 900)")
    page.locator(".trace-row", has_text="SET key:15").wait_for()
    place = page.evaluate("scrollY")
    close = page.locator("button[aria-label='Close the details']")
    for leave in (close.click, page.go_back, lambda: page.keyboard.press("Escape")):
        page.locator(".trace-row", has_text="SET key:15 ").evaluate("(row) => row.click()")
        page.locator(".trace-pane h3", has_text="SET key:15").wait_for()
        assert close.is_visible()
        leave()
        page.locator(".trace-pane").wait_for(state="hidden")
        holds(page, "location.hash === '#/activity'")
        assert page.evaluate("scrollY") == place


def test_a_binary_reply_is_shown_in_hexadecimal(page: Any, server: Server) -> None:
    sent(server, "kv_server", "/set/bytes/%ff%00a/")
    env = server.ask("GET", "/env")[1]
    with redis.Redis.from_url(env["REDIS_URL"]) as client:
        assert client.get("bytes") == b"\xff\x00a"
    at(page, "activity?search=GET+bytes", ".trace-row")
    page.locator(".trace-row").click()
    dump = page.locator("pre[aria-label='Response in hexadecimal']")
    assert dump.inner_text() == "0000  ff 00 61                 ..a"
    page.locator(".trace-pane p", has_text="bytes that are not text").wait_for()


def test_a_call_shows_what_was_sent_and_can_be_copied_as_curl(page: Any, server: Server) -> None:
    command(server, "SET", "it's", "1")
    at(page, "activity", ".trace-row")
    page.click(".trace-row")
    page.locator("pre[aria-label='Request body']", has_text="it's").wait_for()
    assert page.url.endswith("#/activity/" + page.get_attribute(".trace-row", "data-number"))
    page.reload()
    page.locator("pre[aria-label='Request body']", has_text="it's").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page.click("button:text('Copy as curl')")
    page.locator(".trace-copy output", has_text="Copied.").wait_for()
    curl = page.evaluate("navigator.clipboard.readText()")
    kv = fake(server, "kv_server")
    assert curl.startswith(f"curl -g -X POST '{kv['url']}/'")
    assert kv["headers"]["Authorization"] in curl
    assert "it'\\''s" in curl
    page.keyboard.press("Escape")
    holds(page, "location.hash === '#/activity'")


def run(curl: str) -> bytes:
    """Run a copied line in a shell."""
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
    kv = fake(server, "kv_server")
    secret = tmp_path / "secret"
    secret.write_text("of the user's own", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    fetch("POST", f"{kv['url']}/set/file", body=f"@{secret}", headers=kv["headers"])
    fetch("GET", f"{kv['url']}/set/a%5B1-9%5D/{{x,y}}[1]", headers=kv["headers"])
    parts = urlsplit(kv["url"])
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as sock:
        sock.sendall(b"X|touch`echo-owned` /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(1000)
    at(page, "activity")
    holds(page, f"{LINES} === 3 && !document.body.textContent.includes('in progress')")
    copied = """async (fake) => {
        const {entries} = await import("/console/journal.js"), rows = entries.list;
        const {curl, requestOf} = await import("/console/copying.js"), report = {fakes: [fake]};
        const head = {...rows[0], request: {line: "HEAD /", headers: [["Host", "x"]]}};
        return [...rows, head].map((row) => curl(requestOf(row, report)));
    }"""
    *lines, head = page.evaluate(copied, {"name": "kv_server", **kv})
    for name in ("file", "a[1-9]"):
        command(server, "DEL", name)
    for line in lines:
        run(line)
    keys = server.ask("GET", "/fakes/kv_server/view")[1]["keys"]
    values = {key["key"]: key["value"] for key in keys}
    assert values == {"a[1-9]": "{x,y}[1]", "file": f"@{secret}"}
    assert "-X 'X|touch`echo-owned`'" in lines[2]
    assert "curl -g -I " in head


RUNTIMES = {
    "JavaScript": ([shutil.which("node") or ""], "copied.mjs"),
    "Python": ([sys.executable], "copied.py"),
    "Go": ([shutil.which("go") or "", "run"], "copied.go"),
}


@pytest.mark.parametrize("language", RUNTIMES)
def test_copied_code_sends_the_call_and_prints_the_answer(
    page: Any, server: Server, tmp_path: Path, language: str
) -> None:
    runtime, name = RUNTIMES[language]
    if not runtime[0]:
        pytest.skip(f"{language} is not installed")
    command(server, "APPEND", "it's", '"quoted" \\ `ticks` \u007f ä\n')
    at(page, "activity", ".trace-row")
    page.click(".trace-row")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page.click(f"button:text('Copy as {language}')")
    page.locator(".trace-copy output", has_text="Copied.").wait_for()
    (tmp_path / name).write_text(page.evaluate("navigator.clipboard.readText()"), encoding="utf-8")
    done = subprocess.run(
        [*runtime, name], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )
    # Twice the length in bytes of what was appended.
    assert done.stdout.split() == [
        *({"Go": [b"200", b"OK"]}.get(language, [b"200"])),
        b'{"result":48}',
    ]


def test_commands_of_database_clients_are_copied_as_code(
    page: Any, server: Server, tmp_path: Path
) -> None:
    url = server.ask("GET", "/env")[1]["REDIS_URL"]
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(url) as client:
        client.set("it's", 'a "b"\n')
    at(page, "activity?search=SET it's", ".trace-row")
    page.locator(".trace-row", has_text="it's").click()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    copied = {}
    for name in ("redis-py", "ioredis", "node-redis", "go-redis", "redis-cli"):
        page.click(f"button:text('Copy as {name}')")
        page.locator(".trace-copy output", has_text="Copied.").wait_for()
        copied[name] = page.evaluate("navigator.clipboard.readText()")
    words = '"SET", "it\'s", "a \\"b\\"\\n"'
    assert f"client.call({words})" in copied["ioredis"]
    assert f"client.sendCommand([{words}])" in copied["node-redis"]
    assert f"client.Do(context.Background(), {words})" in copied["go-redis"]
    runtimes = {"redis-py": sys.executable, "redis-cli": shutil.which("redis-cli") and "sh"}
    with redis.Redis.from_url(url) as client:
        for name, runtime in runtimes.items():
            if runtime is None:
                continue
            client.delete("it's")
            (tmp_path / name).write_text(copied[name], encoding="utf-8")
            subprocess.run(
                [runtime, name], cwd=tmp_path, env={**os.environ, "REDIS_URL": url},
                check=True, timeout=60, capture_output=True,
            )  # fmt: skip
            assert client.get("it's") == b'a "b"\n'


def test_what_a_copied_line_lacks_is_said(page: Any) -> None:
    lost = """async (request) => (await import('/console/copying.js')).lost(
        {headers: [], body: "", ...request})"""
    for request, text in [
        ({"body": "x", "cut": 9}, "longer than what was recorded"),
        ({"body": "\ufffd"}, "not text"),
        ({"body": "***"}, "Secrets"),
        ({"headers": [["Authorization", "***"]]}, "credentials"),
    ]:
        assert text in page.evaluate(lost, request)
    assert page.evaluate(lost, {"body": "all of it"}) == ""


def test_nothing_of_the_fakes_becomes_markup(page: Any, server: Server) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">'"
    command(server, "SET", evil, evil, "EX", "60")
    server.ask("POST", "/fakes", {"fixture": "kv_server", "settings": {"name": evil}})
    vector, queue = fake(server, "vector_index"), fake(server, "queue")
    fetch(
        "POST", f"{vector['url']}/upsert",
        json={"id": evil, "vector": [1, 2], "metadata": {evil: evil}}, headers=vector["headers"],
    )  # fmt: skip
    fetch("POST", f"{queue['url']}/v2/publish/http://127.0.0.1:9/{evil}", headers=queue["headers"])
    for place in ("fake/kv_server/keys", "fake/vector_index/vectors", "fake/queue/messages"):
        at(page, place, "table.rows a")
        page.click("table.rows a")
        page.locator(".detail h2").wait_for()
        assert "img src=x" in page.inner_text("#view").replace("%3C", "").replace("%20", " ")
        assert page.query_selector("img") is None
    at(page, "fake/" + quote(evil, safe=""), ".empty:has-text('No keys yet.')")
    at(page, "activity", ".trace-row")
    page.click(".trace-row")
    page.locator(".trace-pane h3").wait_for()
    assert page.query_selector("img") is None
    assert page.title().endswith(" · Activity · fakecloud")
    server.ask("DELETE", f"/fakes/{quote(evil, safe='')}")


# -- keys and colours --------------------------------------------------------------------------------


def test_it_works_from_the_keyboard(page: Any, server: Server) -> None:
    for name in ("a", "b", "c"):
        command(server, "SET", name, "1")
    page.keyboard.press("g")
    page.keyboard.press("1")
    page.locator("table.rows a").first.wait_for()
    # Letters work before anything has the focus.
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "a"
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "c"
    page.keyboard.press("Enter")
    page.locator(".detail h2", has_text="c").wait_for()
    page.focus(".detail summary")
    page.keyboard.press("Escape")
    page.locator(".detail").wait_for(state="hidden")
    holds(page, "document.activeElement.textContent === 'c'")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Tab")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.locator(".trace-row").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "view"
    page.keyboard.press("?")
    page.locator("dialog kbd").first.wait_for()
    page.keyboard.press("Escape")
    # Activity begins at its newest row.
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert "SET b" in page.inner_text(".trace-row[aria-selected=true]")
    page.locator(".row-changes h4").wait_for()


def test_what_has_the_focus_keeps_it_while_the_page_keeps_up(page: Any, server: Server) -> None:
    command(server, "SET", "first", "1")
    at(page, "fake/kv_server/keys", "table.rows a")
    page.focus("table.rows a")
    command(server, "SET", "a-second", "1")
    page.locator("table.rows a", has_text="a-second").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "first"
    at(page, "activity", ".trace-row")
    page.click(".trace-row")
    page.click(".trace-pane summary:text-is('Response')")
    command(server, "SET", "third", "1")
    page.locator(".trace-row", has_text="third").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Response"
    assert not page.is_visible("pre[aria-label='Response body']")


@together
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert _contrast(ink, paper) > 7
    assert (_luminance(paper) < _luminance(ink)) == (scheme == "dark")


@together
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["good", "bad", "busy"])
def test_all_parts_of_notices_are_readable(page: Any, scheme: str, kind: str) -> None:
    page.emulate_media(color_scheme=scheme)
    colours = page.evaluate(
        """async (kind) => {
            const {say, el} = await import("/console/dom.js");
            const notice = document.getElementById("notice");
            const undo = el("button", {class: "quiet"}, "Undo");
            say(["Deleted.", el("a", {href: "#/time"}, "3 events"), undo], kind);
            const colours = [notice, ...notice.children].map((part) => getComputedStyle(part).color);
            return colours.map((colour) => [colour, getComputedStyle(notice).backgroundColor]);
        }""",
        kind,
    )
    assert len(colours) == 4
    assert min(_contrast(*pair) for pair in colours) >= 4.5
    page.click("#notice button[aria-label=Dismiss]")
    assert page.inner_text("#notice") == ""


def _contrast(first: str, second: str) -> float:
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
