"""Test the objects for messages, dead letters and schedules, also after a reset."""

from __future__ import annotations

import httpx
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery.routes import Response
from pytest_fakecloud.queue.fake import Queue

from .scene import DEST


def test_reprs_of_objects_that_are_gone(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500)
    message = queue.publish(DEST, retries=0)
    schedule = queue.schedule(DEST, "* * * * *", id="often")
    queue.deliver_due()
    letter = queue.dead_letters().only()
    assert repr(letter) == f"<DeadLetter {letter.id} {DEST} status 500>"
    assert repr(schedule) == f"<Schedule often '* * * * *' to {DEST}>"
    assert not message.is_gone
    queue.reset()
    assert message.is_gone
    assert repr(message) == f"<Message {letter.message._id}, gone: the queue was reset or restored>"
    assert repr(letter) == f"<DeadLetter {letter.id}, gone: the queue was reset or restored>"
    assert repr(schedule).startswith("<Schedule often, gone: deleted, or the queue was reset")


def test_an_attempt_that_got_no_answer_shows_why(queue: Queue) -> None:
    queue.destinations.respond(DEST, Response.refuse())
    queue.publish(DEST, retries=0)
    [attempt] = queue.run_until_idle()
    assert attempt.status is None
    assert repr(attempt).endswith(f"-> {attempt.exception!r}>")
    assert "refuses connections" in repr(attempt)


def test_a_group_without_endpoints_takes_nothing(queue: Queue) -> None:
    httpx.post(f"{queue.url}/v1/topics", json={"name": "g"}, headers=queue.headers)
    with pytest.raises(ContractError, match="'g': the group has no endpoints"):
        queue.publish("g")
    assert queue.messages() == []
