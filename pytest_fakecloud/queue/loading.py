"""Load URL groups, queues, schedules and messages into the ``queue`` fake.

The data is loaded into a copy of the queue first, so that invalid data changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..core.errors import ContractError
from ..core.ids import Ids
from ..core.settings import SWITCH, whole
from ..core.timekeeper import Timekeeper
from ..core.wording import unknown_name
from .actions import QueueActions
from .arguments import text
from .engine.engine import Engine


class _Trial(QueueActions):
    """A copy of a queue with the same rules, on its own frozen clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.twin(Timekeeper(now=engine.clock.now()), Ids(0))
        self._engine.restore(engine.snapshot())

    def _check_open(self) -> None:
        """Do nothing, because this copy is never closed."""


def load(queue: QueueActions, given: Mapping[str, Any]) -> None:
    data = _known("the data", given, ("url_groups", "queues", "schedules", "messages"))
    messages = _published("a message", "messages", data, QueueActions.publish)
    schedules = _published("a schedule", "schedules", data, QueueActions.schedule)
    with queue._engine.lock:
        for place in (_Trial(queue._engine), queue):
            _add(place, data)
            for schedule in schedules:
                place.schedule(**schedule)
            for message in messages:
                place.publish(**message)


def _add(place: QueueActions, data: Mapping[str, Any]) -> None:
    """Add the URL groups and queues; raise an error for the first invalid part."""
    engine = place._engine
    for name, endpoints in _typed("url_groups", data.get("url_groups", {}), dict).items():
        group = text("url_groups name", name)
        wanted = [_endpoint(name, one) for one in _typed(name, endpoints, list)]
        engine.url_groups.add_all(group, wanted, engine.clock.now_us())
    for name, settings in _typed("queues", data.get("queues", {}), dict).items():
        engine.upsert_queue(text("queues name", name), **_queue(name, settings))


def _endpoint(group: str, given: object) -> tuple[str, str | None]:
    one: dict[str, Any] = {"url": given}
    if isinstance(given, Mapping):
        one = _known(f"an endpoint of {group}", given, ("url", "name"))
    name = one.get("name")
    if name is not None:
        text("name", name)
    return text("url", one.get("url")), name


def _queue(name: str, given: object) -> dict[str, Any]:
    settings = {} if given is None else _known(f"queue {name}", given, ("parallelism", "paused"))
    whole(1).read("parallelism", settings.setdefault("parallelism", 1))
    SWITCH.read("paused", settings.setdefault("paused", False))
    return settings | {"paused": bool(settings["paused"])}


def _published(
    where: str, part: str, data: Mapping[str, Any], method: Callable[..., Any]
) -> list[dict[str, Any]]:
    found = [_keywords(where, one, method) for one in _typed(part, data.get(part, []), list)]
    for arguments in found:
        if isinstance(arguments.get("label"), Iterator):
            # Copy an iterator, because it is used twice, for the copy and for the queue.
            arguments["label"] = [*arguments["label"]]
    return found


def _typed(name: str, value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ContractError(f"load(): {name} must be a {kind.__name__}, got {value!r}")
    return value


def _known(where: str, given: object, known: Iterable[str]) -> dict[str, Any]:
    """Return a mapping as a dict; raise ``ContractError`` for unknown keys."""
    if not isinstance(given, Mapping):
        raise ContractError(f"load(): {where} must be a dict, got {given!r}")
    names = list(known)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ContractError(f"load(): {unknown_name(f'key of {where}', unknown[0], names)}")
    return dict(given)


def _keywords(where: str, given: object, method: Callable[..., Any]) -> dict[str, Any]:
    """Return keyword arguments for a method; raise ``ContractError`` if any is unknown or missing."""
    parameters = dict(inspect.signature(method).parameters)
    del parameters["self"]
    found = _known(where, given, parameters)
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name not in found
    ]
    if missing:
        raise ContractError(f"load(): {where} needs {', '.join(missing)}, got {given!r}")
    return found
