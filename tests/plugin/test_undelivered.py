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


@pytest.mark.parametrize(
    "do",
    [
        # The test allows it.
        lambda queue, message, cloud: cloud.allow("undelivered"),
        # The test delivers messages, or tries to.
        lambda queue, message, cloud: queue.run_until_idle(),
        lambda queue, message, cloud: queue.deliver_due(),
        lambda queue, message, cloud: cloud.clock.advance("1s"),
        lambda queue, message, cloud: cloud._time.advance(0),
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
        lambda queue, message, cloud: queue._engine.cancel(message._id),
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


def test_a_queue_that_delivers_by_itself_is_not_warned_of() -> None:
    assert left(lambda *_: None, delivery="background") == []


def test_a_crowd_of_messages_is_told_by_the_first() -> None:
    (line,) = left(lambda queue, message, cloud: [queue.publish(URL) for _ in range(4)])
    assert f"published 5 messages and delivered none of them: POST {URL}, " in line
    assert f"POST {URL} and 2 more. Add queue" in line
