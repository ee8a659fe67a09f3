"""Test what a file keeps of a queue: the work goes on, and edited files with mistakes are refused.

``scenarios/__init__.py`` loads the data of every scenario into another queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.queue.saved import load_saved, saved

from .scene import DEST, Scene


def kept() -> tuple[Any, list[float]]:
    """Return what a file keeps of a queue after the first of three attempts, and their times."""
    with Scene() as scene:
        scene.answer = lambda request: 503
        scene.request("POST", f"/v2/publish/{DEST}", {"Upstash-Retries": "2"})
        scene.queue.deliver_due()
        data = saved(scene.queue)
        scene.queue.run_until_idle()
        return data, scene.times


def test_the_next_attempts_come_at_the_times_at_which_they_would_have_come() -> None:
    data, times = kept()
    with Scene() as scene:
        scene.answer = lambda request: 503
        load_saved(scene.queue, data, "saved")
        scene.queue.run_until_idle()
        assert scene.times == times[1:]
        assert len(scene.queue.dead_letters()) == 1


def test_a_new_message_never_gets_the_id_of_a_message_from_a_file() -> None:
    data, _ = kept()
    with Scene() as scene:
        load_saved(scene.queue, data, "saved")
        answer = scene.request("POST", f"/v2/publish/{DEST}").json()
        assert answer["messageId"] not in data["data"]["messages"]
        assert len(scene.queue.messages()) == 2


def _only(data: Any) -> tuple[str, Any]:
    ((message_id, message),) = data["data"]["messages"].items()
    return message_id, message


def _rename(data: Any) -> None:
    message = _only(data)[1]
    data["data"]["messages"] = {"other": message}


def _lose(data: Any) -> None:
    data["data"]["dead_letters"] = {"1-0": "lost"}


def _without_key(data: Any) -> None:
    _only(data)[1]["settings"] = {"flow": {"key": "k"}}


def _with_former_run(data: Any) -> None:
    run = {"id": "r", "url": DEST, "created_us": 0, "first_message_id": "m", "settings": {}}
    data["former_runs"] = [run]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (_rename, "saved.data.messages: 'other' and 'msg_"),
        (_lose, "saved.data.dead_letters: there is no message 'lost'"),
        (_without_key, "there is no flow-control key 'k'"),
        (_with_former_run, "saved.former_runs: there is no run 'r'"),
    ],
)
def test_an_edited_file_that_contradicts_itself_changes_nothing(
    edit: Callable[[Any], None], text: str
) -> None:
    data, _ = kept()
    edit(data)
    with Scene() as scene:
        before = saved(scene.queue)
        with pytest.raises(ContractError, match="saved") as caught:
            load_saved(scene.queue, data, "saved")
        assert text in str(caught.value)
        assert saved(scene.queue) == before
