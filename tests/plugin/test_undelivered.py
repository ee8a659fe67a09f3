"""A passing test that publishes messages but neither delivers nor inspects any causes a warning."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.base import undelivered

from ..harness import Run

URL = "https://app.test/hook"
WARNING = (
    f"*queue: the test published 1 message and delivered none of them: POST {URL}. "
    'Add queue.run_until_idle() (if intended: fakecloud.allow("undelivered", fake="queue"))*'
)
TEST = """
    import requests

    def test_it(queue, fakecloud, kv_server):
        requests.post(f"{{queue.url}}/v2/publish/https://app.test/hook", headers=queue.headers)
        {then}
"""


def left(do: Any, **settings: Any) -> list[str]:
    """Publish a message to a queue, perform an action, and return the resulting warnings."""
    with Cloud(seed=1, delivery="driven") as cloud:
        queue = cloud.queue(unstubbed="accept", **settings)
        do(queue, queue.publish(URL), cloud)
        return undelivered(cloud, ())


def test_it_is_warned_of_with_the_line_that_fixes_it(run: Run) -> None:
    result = run(TEST.format(then="pass"))
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines([WARNING])


def test_a_test_that_fails_is_not_warned_of(run: Run) -> None:
    run(TEST.format(then="assert 0")).assert_outcomes(failed=1, warnings=0)


def test_it_is_a_failure_where_strict_names_it(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_strict = unrouted undelivered")
    result = run(TEST.format(then="pass"))
    result.assert_outcomes(failed=1, warnings=0)
    result.stdout.fnmatch_lines(
        ["*with 1 strict-mode violation", "*[[]undelivered] queue: the test *"]
    )
    allowed = "fakecloud.allow('undelivered', fake='queue')"
    run(TEST.format(then=allowed)).assert_outcomes(passed=1, warnings=0)


def fail_in(pytester: pytest.Pytester, scope: str) -> None:
    """Let undelivered messages fail a test with fakes of a wide scope."""
    kinds = "unrouted undelivered"
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}\nfakecloud_strict = {kinds}")


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_what_one_test_does_does_not_hide_the_messages_of_the_next(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    fail_in(pytester, scope)
    result = run(
        f"""
        import pytest

        ACTS = [
            lambda queue, cloud: queue.run_until_idle(),
            lambda queue, cloud: cloud.clock.advance("1s"),
            lambda queue, cloud: queue.messages(),
            lambda queue, cloud: queue.journal.calls(),
            lambda queue, cloud: cloud.journal.calls(),
            lambda queue, cloud: queue.client().log.list(),
            lambda queue, cloud: cloud.allow("undelivered"),
        ]

        class TestMessages:
            @pytest.mark.parametrize("forgets", [False, True])
            @pytest.mark.parametrize("act", ACTS)
            def test_it(self, queue, fakecloud, act, forgets):
                queue.destinations.accept()
                queue.publish("{URL}", delay="10m")
                if not forgets:
                    act(queue, fakecloud)
        """
    )
    result.assert_outcomes(passed=7, failed=7)


@pytest.mark.parametrize("scope", ["module", "session"])
def test_messages_of_the_baseline_are_not_the_tests(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    fail_in(pytester, scope)
    result = run(
        f"""
        import pytest

        @pytest.fixture(scope="module", autouse=True)
        def reminders(queue):
            queue.publish("{URL}", delay="1h")
            queue.set_baseline()

        @pytest.mark.parametrize("turn", range(2))
        def test_it(queue, turn):
            pass

        def test_own(queue):
            queue.publish("{URL}", delay="1h")
        """
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*published 1 message and delivered none*"])


@pytest.mark.parametrize(
    "do",
    [
        # The test allows it.
        lambda queue, message, cloud: cloud.allow("undelivered"),
        # The test delivers messages, or tries to.
        lambda queue, message, cloud: queue.run_until_idle(),
        lambda queue, message, cloud: queue.deliver_due(),
        lambda queue, message, cloud: cloud.clock.advance("1s"),
        lambda queue, message, cloud: cloud._timekeeper.advance(0),
        # The test inspects the queue or asserts on it.
        lambda queue, message, cloud: message.state,
        lambda queue, message, cloud: message.attempts,
        lambda queue, message, cloud: queue.messages(),
        lambda queue, message, cloud: queue.message(message.id),
        lambda queue, message, cloud: queue.pending(),
        lambda queue, message, cloud: queue.attempts(),
        lambda queue, message, cloud: queue.dead_letters(),
        lambda queue, message, cloud: queue.assert_published(URL),
        lambda queue, message, cloud: queue.assert_not_delivered(URL),
        lambda queue, message, cloud: busy(queue),
        lambda queue, message, cloud: queue.assert_not_called("batch"),
        lambda queue, message, cloud: cloud.journal.calls(),
        lambda queue, message, cloud: queue.client().log.list(),
        # No message is left, or the action is unrelated.
        lambda queue, message, cloud: queue._engine.lifecycle.cancel(message._id),
        lambda queue, message, cloud: queue.reset(),
        lambda queue, message, cloud: refused(queue),
    ],
)
def test_a_test_that_delivers_or_looks_is_not_warned_of(do: Any) -> None:
    assert left(do) == []


def busy(queue: Any) -> None:
    with pytest.raises(AssertionError, match="not idle"):
        queue.assert_idle()


def refused(queue: Any) -> None:
    with queue.faults.respond(503):
        requests.post(f"{queue.url}/v2/publish/{URL}", headers=queue.headers, timeout=30)


@pytest.mark.parametrize(
    "do",
    [
        lambda queue, message, cloud: None,
        lambda queue, message, cloud: queue.publish(URL, delay="1h"),
        lambda queue, message, cloud: queue.client().message.publish(url=URL),
        lambda queue, message, cloud: cloud.kv_server().assert_not_called("SET"),
    ],
)
def test_what_does_neither_is_warned_of(do: Any) -> None:
    (line,) = left(do)
    assert line.startswith("queue: the test published ")


def test_a_queue_in_the_background_delivers_what_is_due() -> None:
    assert left(lambda *_: None, delivery="background") == []
    assert left(lambda queue, *_: queue.publish(URL, delay="1h"), delivery="background") == []


def test_messages_that_wait_in_the_background_are_warned_of() -> None:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as cloud:
        queue = cloud.queue(unstubbed="accept")
        queue.publish(URL, delay="1h")
        (line,) = undelivered(cloud, ())
        assert line.startswith("queue: the test published 1 message and delivered none of them")
        queue.run_until_idle()
        assert undelivered(cloud, ()) == []


def test_a_crowd_of_messages_is_told_by_the_first() -> None:
    (line,) = left(lambda queue, message, cloud: [queue.publish(URL) for _ in range(4)])
    assert f"published 5 messages and delivered none of them: POST {URL}, " in line
    assert f"POST {URL} and 2 more. Add queue" in line
