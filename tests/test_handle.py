"""Test the methods that all fakes share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from unittest import mock

import pytest

from .budget import cases
from .demo import Demo
from .harness import in_threads


@pytest.fixture
def switching() -> Iterator[None]:
    """Switch between threads as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def leave(demo: Demo, ended: list[int], together: threading.Barrier) -> None:
    together.wait()
    demo.on_close(lambda: ended.append(1))


@pytest.mark.usefixtures("switching")
def test_closing_ends_what_each_of_many_threads_left_to_it() -> None:
    for _ in range(cases(60)):
        ended: list[int] = []
        together = threading.Barrier(4)
        with Demo() as demo:
            in_threads(*[partial(leave, demo, ended, together)] * 4)
        assert len(ended) == 4


class Slotted:
    __slots__ = ("_client",)

    def __init__(self) -> None:
        self._client = mock.Mock(spec=["close"])


def test_closing_a_fake_closes_a_client_with_slots() -> None:
    with Demo() as demo:
        client = demo._official(Slotted, {})
    client._client.close.assert_called_once_with()
