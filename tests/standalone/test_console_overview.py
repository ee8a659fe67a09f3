"""Test the first page of the console, channels, search hits and grouped errors."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from .conftest import Server, fetch
from .test_console import CHROMIUM, at, browser, fake, holds, page, sent, window
from .test_console_work import kv, said, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


def test_the_first_page_has_what_runs_happened_is_due_and_failed(page: Any, server: Server) -> None:
    kv(server, "SET", "greeting", "hello")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/later", Upstash_Delay="1h")
    page.evaluate("location.hash = ''")
    page.reload()
    page.locator(".overview section").first.wait_for()
    assert page.evaluate("location.hash") == "#/overview"
    parts = {
        name: page.locator(f".overview section[aria-label='{name}']")
        for name in ("What runs", "What happened last", "What is due next", "What failed")
    }
    parts["What happened last"].locator("tr", has_text="SET greeting hello").wait_for()
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("button[aria-label='Copy the token of kv_server']")
    headers = fake(server, "kv_server")["headers"]
    assert headers["Authorization"] == f"Bearer {page.evaluate('window.copied')}"
    assert fake(server, "kv_server")["url"] in parts["What runs"].inner_text()
    assert "1 key\t" in parts["What runs"].inner_text()
    assert "Nothing failed." in parts["What failed"].inner_text()
    parts["What is due next"].locator("button", has_text="Move there").click()
    parts["What failed"].locator("td", has_text="connection refused").wait_for()
    parts["What happened last"].locator("a", has_text="SET greeting").click()
    page.locator(".trace-pane h3", has_text="SET greeting hello").wait_for()
    page.locator(".row-changes h4").wait_for()


def test_channels_have_subscribers_and_messages_and_a_field_to_publish(
    page: Any, server: Server
) -> None:
    client = redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"])
    with client, client.pubsub() as subscriber:
        subscriber.subscribe("news")
        subscriber.psubscribe("n*")
        at(page, "fake/kv_server/channels", "table.rows")
        shown = page.locator("table.rows tbody tr").all_inner_texts()
        assert [row.split()[:2] for row in shown] == [["n*", "pattern"], ["news", "channel"]]
        assert all("127.0.0.1:" in row for row in shown)
        page.click("table.rows a:text-is('news')")
        page.locator(".detail table[class] , .detail td", has_text="127.0.0.1").first.wait_for()
        page.locator(".detail form [name=message]").fill("kettles are cheap")
        page.locator(".detail form button[type=submit]").click()
        page.locator(".detail td", has_text="kettles are cheap").wait_for()
        kv(server, "PUBLISH", "news", "from the application")
        page.locator(".detail td", has_text="from the application").wait_for()
        row = page.locator(".detail tr", has_text="from the application")
        assert row.locator("td").last.inner_text() == "2"
        # One form publishes, with the channel where it was opened.
        forms = page.locator("form[aria-label=Publish]:visible, summary:text-is('Publish'):visible")
        assert forms.count() == 2
        page.locator(".detail form [name=message]").fill("")
        page.locator(".detail form button[type=submit]").click()
        assert page.inner_text("dialog #question") == "Publish an empty message?"
        sure = page.locator("dialog button[value=yes]")
        assert (sure.inner_text(), sure.get_attribute("class")) == (
            "Publish an empty message", "primary",
        )  # fmt: skip
        page.click("dialog button:text-is('Cancel')")
        messages = [subscriber.get_message(timeout=5) for _ in range(4)]
        assert b"kettles are cheap" in [one["data"] for one in messages if one]


def test_hits_of_a_search_are_a_table(page: Any, server: Server) -> None:
    kv(server, "HSET", "book:1", "title", "red kettle", "price", "5")
    kv(server, "HSET", "book:2", "title", "blue kettle")
    kv(
        server,
        "SEARCH.CREATE",
        "books",
        "ON",
        "HASH",
        "PREFIX",
        "1",
        "book:",
        "SCHEMA",
        "title",
        "TEXT",
    )
    at(page, "fake/kv_server/indexes/books", ".detail form")
    typed(page, "Query", filter='{"title": "kettle"}')
    said(page, "Query", "blue kettle")
    heads = page.locator(".out thead th").all_inner_texts()
    assert heads == ["key", "score", "title", "price"]
    page.click(".out a:text-is('book:1')")
    page.locator(".detail h2", has_text="book:1").wait_for()


def test_errors_are_grouped_with_advice(page: Any, server: Server) -> None:
    kv(server, "SET", "text", "x")
    for _ in range(3):
        server.ask("POST", "/fakes/kv_server/requests", {"body": ["LPUSH", "text", "y"]})
    wrong = fake(server, "vector_index")["headers"]
    fetch("POST", fake(server, "kv_server")["url"], json=["GET", "text"], headers=wrong)
    at(page, "violations", ".violation, table")
    rows = page.locator("table tbody tr")
    page.locator("td", has_text="WRONGTYPE").first.wait_for()
    texts = rows.all_inner_texts()
    assert sum("LPUSH" in text for text in texts) == 1
    (grouped,) = (text for text in texts if "LPUSH" in text)
    assert "3" in grouped.split()
    assert "The token belongs to vector_index" in " ".join(texts)


def test_failures_have_no_words_of_python(page: Any, server: Server) -> None:
    silent = {"url": "https://silent.example/hook", "answer": "hang"}
    server.ask("POST", "/fakes/queue/destinations", silent)
    for url in ("https://app.example/hook", "https://silent.example/hook"):
        sent(server, "queue", f"/v2/publish/{url}", Upstash_Retries="0", Upstash_Timeout="1s")
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    at(page, "overview", "section[aria-label='What failed'] td")
    overview = page.inner_text("main")
    assert "no answer within the timeout" in overview
    assert "no destination" in overview
    at(page, "violations", ".violation")
    violations = page.inner_text("main")
    assert "no handler for POST https://app.example/hook" in violations
    for name in ("Error", ".wsgi", "queue=", "destinations.respond"):
        assert name not in overview + violations
    page.click("summary:text-is('As a test with pytest reports it')")
    assert ".wsgi(origin, app)" in page.inner_text("main")


def test_counts_and_failures_are_marked_until_all_rows_are_read(page: Any, server: Server) -> None:
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        client.set("text", "x")
        with pytest.raises(redis.ResponseError):
            client.lpush("text", "y")
        with client.pipeline(transaction=False) as pipeline:
            for number in range(1000):
                pipeline.set(f"key:{number}", "1")
            pipeline.execute()
    many = sum(row["fake"] == "kv_server" for row in server.ask("GET", "/journal")[1])
    held: list[Any] = []
    passing = [False]
    latest = server.ask("GET", "/state")[1]["latest"]

    def hold(route: Any) -> None:
        # The newest rows pass, the older ones are held.
        if passing[0] or f"after={latest - 100}&" in route.request.url:
            route.continue_()
        else:
            held.append(route)

    page.route("**/journal?after=*&limit=*", hold)
    page.reload()
    runs = "section[aria-label='What runs']"
    failed = "section[aria-label='What failed']"
    page.locator(f"{failed} [role=status]", has_text="Loading…").wait_for()
    assert "Nothing failed." not in page.inner_text(failed)
    assert " row" not in page.inner_text(f"{runs} tbody")
    passing[0] = True
    for route in held:
        route.continue_()
    page.locator(f"{runs} td", has_text=f"{many:,} rows").wait_for()
    page.locator(f"{failed} td", has_text="WRONGTYPE").wait_for()
    assert page.locator(".overview [role=status]").count() == 0
    page.unroute("**/journal?after=*&limit=*")


def test_what_may_still_happen_is_no_violation(page: Any, server: Server) -> None:
    fault = {"kind": "respond", "args": [503], "times": 1}
    server.ask("POST", "/fakes/kv_server/faults", fault)
    url = fake(server, "vector_index")["url"]
    at(page, "overview", ".overview section")
    failed = page.locator("section[aria-label='What failed']")
    assert "violation" not in failed.inner_text()
    headers = fake(server, "vector_index")["headers"]
    fetch("POST", f"{url}/none", headers=headers)
    count = server.ask("GET", "/state")[1]["violations"]
    assert count == 1
    failed.locator("a", has_text="1 violation").click()
    page.locator(".violation").wait_for()
    assert page.locator(".violation").count() == 1


def test_errors_that_clients_ignore_are_last(page: Any, server: Server) -> None:
    kv(server, "SET", "text", "x")
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["LPUSH", "text", "y"]})
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        for words in (
            ("CLIENT", "SETINFO", "none", "x"),
            ("CLIENT", "MAINT_NOTIFICATIONS", "ON"),
            ("HELLO", "9"),
        ):
            with pytest.raises(redis.ResponseError):
                client.execute_command(*words)
        with pytest.raises(redis.AuthenticationError):
            client.execute_command("HELLO", "3", "AUTH", "default", "wrong")
    at(page, "violations", "table")
    page.locator("td", has_text="WRONGTYPE").first.wait_for()
    page.locator("td", has_text="ignores this error").first.wait_for()
    advice = [text.split("\t") for text in page.locator("tbody tr").all_inner_texts()]
    ignored = ["ignores this error" in row[-2] for row in advice]
    assert ignored == [False, False, True, True, True]


def test_what_was_tried_in_the_console_comes_after_errors_of_the_application(
    page: Any, server: Server
) -> None:
    url = server.fake("kv_server")["env"]["REDIS_URL"]
    with redis.Redis.from_url(url) as client:
        client.set("stock", "tea")
        with pytest.raises(redis.ResponseError):
            client.incr("stock")
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["LPUSH", "stock", "tea"]})
    at(page, "overview", "[aria-label=errors] a")
    page.locator("[aria-label=errors] a", has_text="LPUSH stock tea, from here").wait_for()
    rows = page.locator("[aria-label=errors] tbody a").all_inner_texts()
    assert rows == ["kv_server · INCRBY stock 1", "kv_server · LPUSH stock tea, from here"]


def test_other_kinds_of_errors_are_a_link(page: Any, server: Server) -> None:
    kv(server, "SET", "text", "x")
    for kinds, words in ((4, "1 other kind of error"), (5, "2 other kinds of errors")):
        for command in ("LPUSH", "SADD", "HLEN", "ZCARD", "LLEN", "SCARD")[:kinds]:
            body = [command, "text", "y"] if command in ("LPUSH", "SADD") else [command, "text"]
            server.ask("POST", "/fakes/kv_server/requests", {"body": body})
        at(page, "overview", "section[aria-label='What failed'] td")
        page.locator(f"section[aria-label='What failed'] a:text-is('{words}')").wait_for()
    page.click(f"a:text-is('{words}')")
    page.locator("#view h1", has_text="Problems").wait_for()
    assert page.locator("tbody tr").count() == 5


def test_a_failed_call_has_the_advice_of_its_kind(page: Any, server: Server) -> None:
    kv(server, "SET", "text", "x")
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["LPUSH", "text", "y"]})
    wrong = fake(server, "vector_index")["headers"]
    fetch("POST", fake(server, "kv_server")["url"], json=["GET", "text"], headers=wrong)
    rows = {row["operation"]: row["number"] for row in server.ask("GET", "/journal")[1]}
    for operation, advice, opens in (
        ("GET", "The token belongs to vector_index", 0),
        ("LPUSH", "another type", 1),
    ):
        at(page, f"activity/{rows[operation]}", f".trace-pane .banner:has-text('{advice}')")
        assert page.locator(".trace-pane a:text-is('Open the key')").count() == opens
    at(page, f"activity/{rows['SET']}", ".trace-pane h3:has-text('SET text')")
    assert page.locator(".trace-pane .banner").count() == 0


def test_addresses_of_both_protocols_are_shown(page: Any, server: Server) -> None:
    kv_server = fake(server, "kv_server")
    protocol, place = kv_server["env"]["REDIS_URL"].split("//")
    address = f"{protocol}//{place.split('@')[-1]}"
    for page_name in ("overview", "connect"):
        at(page, page_name, f"#view div:text('{address}')")
        page.locator("main", has_text=kv_server["url"]).wait_for()
        page.locator(f"[aria-label='Copy the address {address} of kv_server']").wait_for()
    assert "Upstash Redis" in page.inner_text("#view dl")
    at(page, "overview", "section[aria-label='What runs']")
    names = page.locator("section[aria-label='What runs'] tbody td:first-child a").all_inner_texts()
    assert names == [one["name"] for one in server.summary["fakes"]]


def test_errors_of_ordinary_control_flow_are_no_failures(page: Any, server: Server) -> None:
    kv(server, "XADD", "events", "*", "n", "1")
    kv(server, "XGROUP", "CREATE", "events", "stats", "0")
    url = fake(server, "kv_server")["env"]["REDIS_URL"]
    with redis.Redis.from_url(url) as client:
        assert client.register_script("return 7")() == 7  # EVALSHA, SCRIPT LOAD, EVALSHA
        for words in (("XGROUP", "CREATE", "events", "stats", "0"), ("LPUSH", "events", "x")):
            with pytest.raises(redis.ResponseError):
                client.execute_command(*words)
    for target in ("/v2/messages/none", "/v2/nowhere/none"):
        server.ask("POST", "/fakes/queue/requests", {"method": "GET", "target": target})
    at(page, "overview", "section[aria-label='What failed'] td")
    failed = page.locator("section[aria-label='What failed']")
    failed.locator("td", has_text="LPUSH").first.wait_for()
    first = "(all) => all.map((row) => row.cells[0].innerText)"
    # What is a violation is named above the other failures, and not shown twice.
    assert failed.locator("tbody tr").evaluate_all(first) == ["kv_server · LPUSH events x"]
    failed.locator("a:text-is('1 violation: unrouted GET /v2/nowhere/none')").wait_for()
    # The advice names the type of the key and commands that fit it.
    failed.locator("td", has_text="events holds a stream: use XADD, XRANGE or").wait_for()
    at(page, "activity?status=failed", ".trace-row")
    holds(page, "document.querySelectorAll('.trace-row').length === 2")
    at(page, "activity?problems=yes", ".trace-row")
    holds(page, "document.querySelectorAll('.trace-row').length === 2")
    at(page, "overview", "section[aria-label='What failed'] td")
    failed.locator("a", has_text="that clients expect").click()
    for text in ("EVALSHA", "XGROUP CREATE", "GET /v2/messages/none"):
        page.locator(".trace-row", has_text=text).first.wait_for()
    assert page.locator(".trace-row", has_text="nowhere").count() == 0


def test_the_answer_of_a_destination_is_said_once(page: Any, server: Server) -> None:
    answer = {"url": "https://app.example/mail", "answer": {"status": 500, "body": "no mailbox"}}
    server.ask("POST", "/fakes/queue/destinations", answer)
    sent(server, "queue", "/v2/publish/https://app.example/mail", Upstash_Retries="0")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="attempt 1").first.click()
    advice = page.locator(".trace-pane .banner", has_text="answered 500")
    assert (
        "app.example/mail answered 500 no mailbox. The handler failed: the log of your application"
        in advice.inner_text()
    )


def test_a_hit_of_the_search_says_nothing_twice(page: Any, server: Server) -> None:
    kv(server, "HSET", "order:42", "item", "kettle", "cents", "2500")
    at(page, "activity", ".trace-row:has-text('HSET')")
    at(page, "search?search=kettle", ".sentences li:has-text('HSET')")
    hit = page.locator(".sentences li", has_text="HSET").inner_text()
    assert (hit.count("kettle"), hit.count("2500")) == (1, 1)
