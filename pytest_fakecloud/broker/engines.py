"""Choose between the broker's two engines: in memory, or on a real Kafka cluster."""

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
"""The in-memory engine or the engine on a real cluster, which have the same methods.

Timeouts are in milliseconds and limit how long a call waits. Every method can raise
``BrokerError``. An operation that an engine does not support raises ``ContractError``.
"""


def make_engine(clock: Timekeeper, ids: Ids, config: BrokerConfig) -> BrokerEngine:
    """Return an in-memory engine or, if the ``engine`` setting is an address, one that uses a real
    cluster.

    Raises ``ContractError`` for an address that is not ``kafka://host:port``, and if
    confluent-kafka is not installed.
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
