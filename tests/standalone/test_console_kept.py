"""Test the work that the console keeps, in a real browser: files, destinations, counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ..harness import wait_until
from .conftest import Serve, Server
from .test_console import CHROMIUM, Window, at, browser, command, holds, page, sent, window
from .test_console_work import answer, kv, press, said, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


def saved(page: Any, button: str) -> Any:
    """Press a button that saves a file; return the name and the content of the file."""
    with page.expect_download() as started:
        page.click(f"button[aria-label='{button}']")
    return started.value.suggested_filename, json.loads(Path(started.value.path()).read_text())


def test_the_state_is_saved_as_a_file_and_loaded(
    page: Any, server: Server, tmp_path: Path, window: Window
) -> None:
    kv(server, "SET", "kept", "1")
    at(page, "snapshots", "h2:text-is('State file')")
    page.locator("text=Start it with --state FILE").wait_for()
    name, state = saved(page, "Save as state file")
    assert (name, set(state)) == ("state.json", {"clock", "saved"})
    file = tmp_path / "mine.json"
    # JavaScript has no such number.
    state["kv"] = {"values": {"large": 12345678901234567890}}
    file.write_text(json.dumps(state))
    kv(server, "SET", "kept", "2")
    page.set_input_files("input[type=file]", file)
    answer(page, "Load mine.json? It replaces the data", "Cancel")
    assert kv(server, "GET", "kept") == "2"
    page.set_input_files("input[type=file]", file)
    answer(page, "Load mine.json?", "Load")
    page.locator("#notice", has_text="mine.json is loaded.").wait_for()
    assert kv(server, "MGET", "kept", "large") == ["1", "12345678901234567890"]
    file.write_text('{"broken": 1}')
    page.set_input_files("input[type=file]", file)
    answer(page, "Load mine.json?", "Load")
    page.locator("#notice", has_text="broken").wait_for()
    window.violations.clear()


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no file that is open")
def test_the_file_that_keeps_the_state_is_named_and_a_failed_save_is_a_warning(
    window: Window, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "folder" / "work.json"
    server = serve("kv", "--random", "--state", str(file), "--save-every", "1s")
    window.show(server)
    page = window.page
    page.locator("#nav a", has_text="state in work.json").click()
    page.locator(f"text=The server keeps its state in {file}, last saved at").wait_for()
    for path in file.parent.iterdir():
        path.unlink()
    file.parent.rmdir()
    file.parent.touch()
    kv(server, "SET", "k", "v")
    page.locator(".banner.bad", has_text="The state cannot be saved").wait_for()
    page.locator("#nav .many.bad", has_text="!").wait_for()
    page.locator("#nav small", has_text="the state is not saved").wait_for()
    file.parent.unlink()
    page.locator("#nav .many.bad").wait_for(state="detached")


def test_lists_and_activity_are_saved_as_files(page: Any, server: Server) -> None:
    kv(server, "MSET", *(word for number in range(150) for word in (f"key:{number}", "x")))
    kv(server, "SET", "other", "y")
    at(page, "fake/kv_server/keys?search=key", "table.rows")
    name, keys = saved(page, "Save these keys as JSON")
    assert (name, len(keys)) == ("kv_server-keys.json", 150)
    at(page, "activity", ".trace-row")
    page.fill(".trace input[type=search]", "other")
    holds(page, "document.querySelectorAll('.trace-row').length === 1")
    name, rows = saved(page, "Save the rows that are shown as JSON")
    assert (name, [row["operation"] for row in rows]) == ("activity.json", ["SET"])
    name, archive = saved(page, "Save the calls that are shown as HAR")
    assert (name, [entry["_number"] for entry in archive["log"]["entries"]]) == (
        "activity.har", [rows[0]["number"]],
    )  # fmt: skip
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Retries="1")
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    page.fill(".trace input[type=search]", "127.0.0.1:9")
    page.locator(".trace-row", has_text="attempt 2").wait_for()
    entries = saved(page, "Save the calls that are shown as HAR")[1]["log"]["entries"]
    assert [entry["_kind"] for entry in entries] == ["call", "message", "message"]
    assert [entry["response"]["status"] for entry in entries] == [200, 0, 0]
    page.fill(".trace input[type=search]", "")
    holds(page, "document.querySelectorAll('.trace-row').length > 4")
    assert len(saved(page, "Save the calls that are shown as HAR")[1]["log"]["entries"]) == 5


def test_an_unanswered_address_is_forwarded_and_answered_on_the_problem(
    page: Any, server: Server
) -> None:
    for url in ("https://app.example/hook", "https://mail.example/"):
        sent(server, "queue", f"/v2/publish/{url}", Upstash_Retries="1")
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    at(page, "violations", ".violation")
    holds(page, "document.title.startsWith('(2) Problems')")
    form = "Forward app.example to …"
    page.locator(f"summary:text-is('{form}')").click()
    page.fill(f"form[aria-label='{form}'] [name=target]", "http://127.0.0.1:9")
    # New rows do not drop what was typed.
    command(server, "SET", "k", "v")
    assert page.input_value(f"form[aria-label='{form}'] [name=target]") == "http://127.0.0.1:9"
    typed(page, form)
    answered = page.locator(".violation .ok", has_text="are answered by now")
    answered.wait_for()
    typed(page, "Answer mail.example with …", status="200", body="thanks")
    answered.nth(1).wait_for()
    # What takes the answer back takes back the sentence.
    page.click("#notice button:text-is('Undo')")
    answered.nth(1).wait_for(state="detached")
    typed(page, "Answer mail.example with …", status="200", body="thanks")
    answered.nth(1).wait_for()
    assert server.ask("GET", "/fakes/queue/destinations")[1] == [
        {"url": "https://mail.example", "answer": [{"status": 200, "body": "thanks"}]},
        {"url": "https://app.example", "answer": {"forward": "http://127.0.0.1:9"}},
    ]
    press(page, "Dismiss")
    holds(page, "document.querySelectorAll('.violation').length === 1")
    press(page, "Dismiss")
    page.locator("#view .empty", has_text="No violations.").wait_for()
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    attempts = server.ask("GET", "/fakes/queue/attempts")[1]
    assert {attempt["url"]: attempt["status"] for attempt in attempts} == {
        "https://app.example/hook": None, "https://mail.example/": 200,
    }  # fmt: skip
    # The dead letter of the forwarded message.
    holds(page, "document.title.startsWith('(1) Problems')")


def test_destinations_are_listed_replaced_after_a_question_and_removed(
    page: Any, server: Server
) -> None:
    at(page, "fake/queue/destinations", ".empty")
    form = "Answer an address with …"
    typed(page, form, url="https://app.example", status="503")
    said(page, form, "Deliveries to https://app.example are answered with 503.")
    page.locator("td", has_text="503").wait_for()
    typed(page, form, url="https://app.example", status="200")
    answer(page, "are answered already. Replace that?", "Replace the answer")
    page.locator("td", has_text="200").wait_for()
    press(page, "Remove")
    page.locator(".empty", has_text="No destinations.").wait_for()
    wait_until(lambda: server.ask("GET", "/fakes/queue/destinations")[1] == [])


def test_an_edit_form_is_left_by_cancel_and_escape(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    kv(server, "HSET", "h", "f", "v")
    at(page, "fake/kv_server/keys/a", ".detail textarea")
    assert not page.is_visible(".detail .cancel")
    page.fill(".detail textarea", "typed")
    page.keyboard.press("Escape")
    answer(page, "Discard what you have typed?", "Keep editing")
    assert page.input_value(".detail textarea") == "typed"
    page.click(".detail .cancel:visible")
    answer(page, "Discard what you have typed?", "Discard")
    holds(page, "document.querySelector('.detail textarea').value === '1'")
    at(page, "fake/kv_server/keys/h", ".detail button:text-is('Edit')")
    press(page, "Edit")
    page.locator("form[aria-label='Edit f'] [name=value]").press("Escape")
    page.locator("form[aria-label='Edit f']").wait_for(state="detached")
    assert page.is_visible(".detail h2:text-is('h')")


def test_the_search_for_a_key_that_is_gone_leads_to_its_history(page: Any, server: Server) -> None:
    kv(server, "SET", "lost", "1")
    kv(server, "SET", "kept", "1")
    kv(server, "DEL", "lost")
    at(page, "fake/kv_server/keys?search=lost", ".empty")
    page.click(".empty a:text-is('the history of lost')")
    page.locator(".versions td", has_text="gone").wait_for()
    at(page, "fake/kv_server/keys?search=never", ".list .empty")
    holds(page, "!document.querySelector('.list .empty a')")


def test_the_metadata_of_a_vector_is_edited_and_the_edit_undone(page: Any, server: Server) -> None:
    film = {"id": "v", "vector": [1, 2], "metadata": {"title": "A"}}
    sent(server, "vector_index", "/upsert", film)
    at(page, "fake/vector_index/vectors/v", ".detail h2")
    typed(page, "Edit the metadata", metadata='{"title": "B"}')
    page.locator("pre[aria-label=metadata]", has_text='"B"').wait_for()
    page.click("#notice button:text-is('Undo')")
    page.locator("pre[aria-label=metadata]", has_text='"A"').wait_for()
