"""The two engines of a broker, and the choice between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..core.errors import ContractError
from ..core.ids import Ids
from ..core.timekeeper import Timekeeper
from .engine.engine import MemoryEngine
from .settings import BrokerConfig

if TYPE_CHECKING:
    from .kafka.engine import KafkaEngine

BrokerEngine: TypeAlias = "MemoryEngine | KafkaEngine"
"""One broker, in memory or over a real cluster. Both have the same methods.

Timeouts are milliseconds and bound the call; every method may raise ``BrokerError``. What an engine
cannot do for a tester raises ``ContractError``.
"""


def make_engine(clock: Timekeeper, ids: Ids, config: BrokerConfig) -> BrokerEngine:
    """Make the engine of a real cluster, or without ``engine=`` the engine in memory.

    Raises ``ContractError`` for an address that is no ``kafka://host:port``, and without
    confluent-kafka.
    """
    url, name = config.engine, config.name or "broker"
    if url is None:
        return MemoryEngine(clock, ids, config, name=name)
    try:
        from .kafka.engine import KafkaEngine
    except ModuleNotFoundError as error:
        raise ContractError(
            f"engine={url.partition('://')[0]!r} needs confluent-kafka: "
            "pip install 'pytest-fakecloud[kafka]'"
        ) from error
    return KafkaEngine(clock, ids, config, url, name=name, isolation=config.isolation)
