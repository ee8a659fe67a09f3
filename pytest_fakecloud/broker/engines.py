"""The line that chooses an engine."""

from __future__ import annotations

from typing import Literal

from ..core.errors import ContractError
from ..core.ids import Ids
from ..core.timekeeper import Timekeeper
from .engine.engine import MemoryEngine
from .protocol import BrokerEngine
from .settings import Behaviour, string

__all__ = ["make_engine"]


def make_engine(
    url: str | None,
    clock: Timekeeper,
    ids: Ids,
    settings: Behaviour,
    *,
    name: str,
    isolation: Literal["prefix", "none"] = "prefix",
) -> BrokerEngine:
    """Make the engine behind an address, or without one the engine in memory.

    Raises ``ContractError`` for an address that is no ``kafka://host:port``, and without
    confluent-kafka.
    """
    if url is None:
        return MemoryEngine(clock, ids, settings, name=name)
    string("engine", url, optional=True)
    try:
        from .kafka.engine import KafkaEngine
    except ModuleNotFoundError as error:
        raise ContractError(
            f"engine={url.partition('://')[0]!r} needs confluent-kafka: "
            "pip install 'pytest-fakecloud[kafka]'"
        ) from error
    return KafkaEngine(clock, ids, settings, url, name=name, isolation=isolation)
