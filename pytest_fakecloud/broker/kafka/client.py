"""How clients connect to a real cluster: its address, their settings, and their errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from confluent_kafka import KafkaError, KafkaException

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ..errors import BrokerError

T = TypeVar("T")
POLL_SECONDS = 0.05
"""Seconds between two polls of a waiting call."""
_KINDS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "record_too_large",
    KafkaError.RECORD_LIST_TOO_LARGE: "record_too_large",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "unknown_topic",
    KafkaError._UNKNOWN_TOPIC: "unknown_topic",
    KafkaError._UNKNOWN_PARTITION: "unknown_partition",
    KafkaError.TOPIC_EXCEPTION: "invalid_topic",
    KafkaError.OFFSET_OUT_OF_RANGE: "offset_out_of_range",
    KafkaError.NOT_ENOUGH_REPLICAS: "not_enough_replicas",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "not_enough_replicas",
    KafkaError.ILLEGAL_GENERATION: "rebalance_in_progress",
    KafkaError.REBALANCE_IN_PROGRESS: "rebalance_in_progress",
    KafkaError.UNKNOWN_MEMBER_ID: "unknown_member",
}
"""The error that clients receive for an error of librdkafka; for all others, ``Unavailable``."""


class Address:
    """A parsed address: ``kafka://[user:password@]host:port[,host:port…][?setting=value&…]``.

    The settings are librdkafka's and apply to every client, except three settings of this package:
    ``prefix`` is a prefix of topics and groups, for sharing them with other processes on purpose.
    ``static`` is whether instances are static members (true by default). ``request.timeout`` is the
    time in seconds until a cluster counts as unavailable (5 by default). Raises ``ContractError``
    for an invalid address.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            # The address may contain a password, so leave it out.
            raise ContractError(f"engine= is not an address: {error}") from None
        user, _, hosts = parts.netloc.rpartition("@")
        if parts.scheme not in ("kafka", "kafkas") or not hosts:
            raise ContractError(
                f"engine={parts.scheme or url!r} is unknown: pass an address such as "
                "'kafka://127.0.0.1:9092'"
            )
        settings = dict(parse_qsl(parts.query))
        self.where = hosts
        self.prefix = settings.pop("prefix", None)
        self.static = _flag("static", settings.pop("static", "true"))
        self.timeout = _seconds("request.timeout", settings.pop("request.timeout", "5"))
        self._settings = settings
        self._base: dict[str, Any] = {
            "bootstrap.servers": hosts,
            "log_level": 0,
            # Reconnect quickly. By default, librdkafka can take ten seconds to notice that a
            # cluster is back, and it delays the first connection to a known broker by a tenth of a
            # second.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1000,
            **_security(user, tls=parts.scheme == "kafkas"),
        }

    def settings(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a client. Settings in the address override those in ``what``."""
        return {**self._base, **what, **self._settings, "logger": _null_logger()}


def _security(user: str, *, tls: bool) -> dict[str, str]:
    """Return librdkafka's settings for a connection with ``name:password``, or without a user."""
    if not user:
        return {"security.protocol": "SSL"} if tls else {}
    name, _, password = user.partition(":")
    return {
        "sasl.mechanism": "PLAIN",
        "sasl.username": unquote(name),
        "sasl.password": unquote(password),
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
    }


def _flag(name: str, text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ContractError(f"{name}={text!r} is invalid: pass true or false")
    return words[text.lower()]


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ContractError(f"{name}={text!r} is invalid: pass a positive number of seconds")
    return seconds


def _null_logger() -> logging.Logger:
    """Return a logger that discards librdkafka's messages, such as lost connections."""
    logger = logging.getLogger("pytest_fakecloud.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def when_disconnected(callback: Callable[[], object]) -> Callable[[Any], None]:
    """Return an ``error_cb`` that calls ``callback`` when a client has lost all its connections."""

    def error_cb(error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            callback()

    return error_cb


def complete(result: Future[Any], function: Callable[[], Any]) -> None:
    """Call a function, and set a future to its result or to its error."""
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)


def look_until(deadline: float, look: Callable[[], T | None]) -> T | None:
    """Call ``look`` every 50 ms, until it returns a result or until a time of the monotonic clock."""
    pause = threading.Event()
    while True:
        found = look()
        if found is not None or monotonic() > deadline:
            return found
        pause.wait(POLL_SECONDS)


class Unavailable(BrokerError):
    """Raised when the real cluster does not respond. The REST API then returns 503."""

    def __init__(self, reason: object) -> None:
        super().__init__("not_enough_replicas", f"The cluster is not available: {reason}")


def translated(error: Any) -> BrokerError:
    """Convert an error of librdkafka to the error that clients receive."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return Unavailable(error)
    kind = _KINDS.get(error.code())
    return Unavailable(error.str()) if kind is None else BrokerError(kind, error.str())


def real_only(what: str) -> ContractError:
    """Return the error of an action that only the in-memory engine can perform."""
    return ContractError(
        f"{what} is not possible with a real cluster: use the in-memory engine (leave out engine=)"
    )


def unsupported(what: str) -> Callable[..., NoReturn]:
    """Return a method that raises the error of ``real_only()``."""

    def method(*given: object, **named: object) -> NoReturn:
        raise real_only(what)

    return method
