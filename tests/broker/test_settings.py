"""What a broker is made with."""

from __future__ import annotations

import inspect
from typing import get_type_hints

from pytest_fakecloud.broker.handle import Broker
from pytest_fakecloud.broker.settings import BrokerSettings


def test_the_settings_are_those_of_the_constructor() -> None:
    """As types too: what the fixture's marker and ``Cloud`` take is what the handle takes."""
    own = inspect.signature(Broker, eval_str=True).parameters.values()
    taken = {p.name: p.annotation for p in own if p.kind is p.KEYWORD_ONLY}
    assert get_type_hints(BrokerSettings) == taken
