"""Test durations, source lines of handlers, and the text for an unfinished message."""

from __future__ import annotations

import sysconfig
from itertools import count
from typing import Any

import httpx
import pytest

import pytest_fakecloud
from pytest_fakecloud.core.errors import Crash
from pytest_fakecloud.core.raised import raised_text
from pytest_fakecloud.queue.attempt_reports import span, unfinished_lines, waiting_text
from pytest_fakecloud.queue.delivery.routes import Response

from .engine.bench import Bench
from .scene import Scene


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (499, "0 s"),
        (501, "0.001 s"),
        (12_182_000, "12.182 s"),
        (59_999_499, "59.999 s"),
        (59_999_999, "1 m"),
        (119_999_600, "2 m"),
        (3_599_999_999, "1 h"),
        (86_399_999_999, "1 d"),
        (22_026_466_000, "6 h 7 m 6.466 s"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert span(us) == text


@pytest.mark.parametrize("beside", [pytest_fakecloud.__path__[0], sysconfig.get_path("stdlib")])
def test_a_folder_named_like_a_library_belongs_to_the_application(beside: str) -> None:
    names: dict[str, Any] = {}
    exec(compile("def slip(): 1 / 0", beside + "_app/views.py", "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["slip"]()
    assert "(views.py:1 in slip" in raised_text(caught.value)


def test_links_to_the_documentation_of_a_client_are_left_out() -> None:
    response = httpx.Response(404, request=httpx.Request("GET", "http://shop/a"))
    with pytest.raises(httpx.HTTPStatusError, match="For more information") as caught:
        response.raise_for_status()
    text = raised_text(caught.value)
    assert text.startswith(
        "the handler raised HTTPStatusError: Client error '404 Not Found' for url 'http://shop/a' ("
    )


def _raised(source: str, crash: BaseException) -> str:
    """Return the text for an exception of an application that handles a crash."""
    with pytest.raises(BaseException) as caught:
        exec(compile(source, "app/views.py", "exec"), {"crash": crash})
    return raised_text(caught.value)


@pytest.mark.parametrize("crash", [Crash(), BaseExceptionGroup("tasks", [Crash()])])
def test_a_crash_is_no_exception_of_the_application(crash: BaseException) -> None:
    text = "the handler crashed (views.py:2 in <module>)"
    assert _raised("\nraise crash", crash) == text
    handles = "try:\n    raise crash\nexcept BaseException:\n    raise ValueError('no')"
    raised = "the handler raised ValueError: no (views.py:4 in <module>)"
    assert _raised(handles, crash) == f"{raised} while handling a crash (views.py:2)"
    library_error = RuntimeError("closed")
    library_error.__context__ = crash
    assert raised_text(library_error) == "the handler crashed"


@pytest.mark.parametrize("cause", ["context", "cause", "none"])
def test_an_exception_names_the_one_that_was_being_handled(cause: str) -> None:
    source = "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('no')"
    source += {"context": "", "cause": " from error", "none": " from None"}[cause]
    with pytest.raises(ValueError, match="no") as caught:
        exec(compile(source, "app/views.py", "exec"), {})
    text = raised_text(caught.value)
    expected = " while handling KeyError (views.py:2)" if cause == "context" else ""
    assert text == f"the handler raised ValueError: no (views.py:4 in <module>){expected}"


def test_the_text_for_a_due_message(bench: Bench) -> None:
    message = bench.engine.data.messages[bench.publish(Delay="1d")]

    def text() -> str:
        return waiting_text(bench.engine, message, bench.clock.now_us())

    assert text() == "due 2026-01-02 00:00:00Z in 1 d (delay)"
    bench.clock.spend_until(message.not_before_us - 30_000_000)
    assert text() == "due 2026-01-02 00:00:00Z in 30 s (delay)"
    bench.clock.spend_until(message.not_before_us)
    assert text() == "due now, but not delivered yet; call queue.run_until_idle()"
    bench.engine.data.in_background = True
    assert text() == "due now, but not delivered yet in the background"


def test_messages_that_are_due_together_share_a_line_while_the_clock_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [bench.publish(Delay="1d") for _ in range(2)]
    monkeypatch.setattr(bench.clock, "now_us", count(bench.start_us, 1000).__next__)
    (line,) = unfinished_lines(bench.engine)
    assert line.startswith(", ".join(ids))


def test_the_text_for_a_waiting_message(bench: Bench) -> None:
    bench.engine.queues.upsert("q", paused=True)
    message = bench.engine.data.messages[bench.publish(Queue_Name="q")]
    assert waiting_text(bench.engine, message, bench.start_us) == "waits: queue q is paused"


def test_messages_ahead_in_a_queue_are_listed_in_their_order() -> None:
    with Scene() as scene:
        scene.ok("POST", "/v2/queues", json={"queueName": "q", "parallelism": 3})
        scene.answer = lambda request: Response(200, after="1h")
        ids = [scene.publish(way="/v2/enqueue/q/") for _ in range(4)]
        scene.queue.deliver_due()
        *_, last = unfinished_lines(scene.queue._engine)
        assert last.endswith(f"waits in queue q behind {', '.join(ids[:3])}")
