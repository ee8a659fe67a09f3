"""Load URL groups, queues, schedules and messages into the ``queue`` fake.

The data is loaded into a copy of the queue first, so that invalid data changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.errors import ContractError
from ..core.ids import Ids
from ..core.settings import SWITCH, whole
from ..core.timekeeper import Timekeeper
from ..core.wording import unknown_name
from .actions import QueueActions
from .arguments import text
from .engine.engine import Engine


class _Data(NamedTuple):
    """Checked data: endpoints by group, keyword arguments of each queue, schedule and message."""

    groups: dict[str, list[tuple[str, str | None]]]
    queues: dict[str, dict[str, Any]]
    schedules: list[dict[str, Any]]
    messages: list[dict[str, Any]]


class _Trial(QueueActions):
    """A copy of a queue with the same rules, on its own frozen clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.twin(Timekeeper(now=engine.clock.now()), Ids(0))
        self._engine.restore(engine.snapshot())

    def _check_open(self) -> None:
        """Do nothing, because this copy is never closed."""


def load(queue: QueueActions, given: Mapping[str, Any]) -> None:
    data = _checked(given)
    with queue._engine.lock:
        _add(_Trial(queue._engine), data)
        _add(queue, data)


def _add(place: QueueActions, data: _Data) -> None:
    engine = place._engine
    for name, endpoints in data.groups.items():
        engine.url_groups.add_all(name, endpoints, engine.clock.now_us())
    for name, settings in data.queues.items():
        engine.queues.upsert(name, **settings)
    for schedule in data.schedules:
        place.schedule(**schedule)
    for message in data.messages:
        place.publish(**message)


def _checked(data: object) -> _Data:
    given = _known("the data", data, ("url_groups", "queues", "schedules", "messages"))
    return _Data(
        groups={
            text("url_groups name", name): [
                _endpoint(name, one) for one in _section({name: endpoints}, name, list)
            ]
            for name, endpoints in _section(given, "url_groups", dict).items()
        },
        queues={
            text("queues name", name): _queue(name, settings)
            for name, settings in _section(given, "queues", dict).items()
        },
        schedules=[
            _keywords("a schedule", one, QueueActions.schedule)
            for one in _section(given, "schedules", list)
        ],
        messages=[_message(one) for one in _section(given, "messages", list)],
    )


def _endpoint(group: str, given: object) -> tuple[str, str | None]:
    one: dict[str, Any] = {"url": given}
    if isinstance(given, Mapping):
        one = _known(f"an endpoint of {group}", given, ("url", "name"))
    name = one.get("name")
    if name is not None:
        text("name", name)
    return text("url", one.get("url")), name


def _queue(name: str, given: object) -> dict[str, Any]:
    known = ("parallelism", "paused")
    settings = _known(f"queue {name}", {} if given is None else given, known)
    whole(1).read("parallelism", settings.setdefault("parallelism", 1))
    SWITCH.read("paused", settings.setdefault("paused", False))
    return settings | {"paused": bool(settings["paused"])}


def _message(given: object) -> dict[str, Any]:
    message = _keywords("a message", given, QueueActions.publish)
    if isinstance(message.get("label"), Iterator):
        # Copy an iterator, because the message is published twice, in the copy and in the queue.
        message["label"] = [*message["label"]]
    return message


def _section(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a part of the data, which is empty if it is missing."""
    found = data.get(name, kind())
    if not isinstance(found, kind):
        raise ContractError(f"load(): {name} must be a {kind.__name__}, got {found!r}")
    return found


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
