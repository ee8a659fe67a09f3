"""The settings as type checkers know them are those that the handles take."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from pytest_fakecloud.queue import handle, settings
from pytest_fakecloud.queue.capture.handle import CallbackCapture
from pytest_fakecloud.queue.capture.settings import CallbackCaptureSettings
from pytest_fakecloud.queue.handle import Queue
from pytest_fakecloud.queue.settings import QueueSettings


@pytest.mark.parametrize(
    ("made", "known"), [(Queue, QueueSettings), (CallbackCapture, CallbackCaptureSettings)]
)
def test_settings_are_those_of_the_constructor(made: Any, known: Any) -> None:
    names = {**vars(handle), **vars(settings), "Context": object}
    taken = get_type_hints(made.__init__, names)
    keywords = {
        name
        for name, one in inspect.signature(made.__init__).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    assert keywords == known.__annotations__.keys()
    assert get_type_hints(known) == {name: taken[name] for name in known.__annotations__}
