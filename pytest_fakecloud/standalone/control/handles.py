"""Endpoints of the fakes of a cloud and of their faults."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...core.errors import ContractError
from ...core.field_types import TOKEN
from ...core.wording import unknown_name
from ...faults.fault import Fault as InjectedFault
from ...faults.fault import rule_of
from ...faults.plan import fault_kinds
from ...handle import Handle
from ...http.messages import Answer, Effect, Request
from ...http.routing import Route
from ..browse.pages import whole_number
from . import PREFIX, Refused, contract, fields, named
from .shapes import Closed, Fault, HandleEntry

if TYPE_CHECKING:
    from ...cloud import Cloud

_METHOD = re.compile(r"[A-Za-z]{1,20}")
_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")


class HandleRoutes:
    """Endpoints that start, describe and close fakes, send them requests, and inject faults."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._numbers = WeakKeyDictionary[InjectedFault, int]()
        """The ids of the faults that were described so far."""
        self._next_number = itertools.count(1)

    def routes(self) -> list[Route]:
        handle = f"{PREFIX}/handles/{{name}}"
        return [
            Route("POST", f"{PREFIX}/handles", "start_handle", self.start_handle),
            Route("GET", handle, "handle", self.get_handle),
            Route("DELETE", handle, "close_handle", self.close_handle),
            Route("POST", f"{handle}/requests", "send", self.send_request, lingers=True),
            Route("GET", f"{handle}/faults", "faults", self.get_faults),
            Route("POST", f"{handle}/faults", "add_fault", self.add_fault),
            Route("DELETE", f"{handle}/faults", "clear_faults", self.clear_faults),
            Route("DELETE", f"{handle}/faults/{{id}}", "remove_fault", self.remove_fault),
        ]

    def start_handle(self, request: Request) -> HandleEntry:
        """Start another fake: ``{"fixture": "kv_server", "settings": {…}}``."""
        body = fields(request)
        settings = {} if body.get("settings") is None else body["settings"]
        if not isinstance(settings, dict):
            raise Refused(422, f"settings must be an object, got {settings!r}")
        fixture = body.get("fixture")
        if not isinstance(fixture, str):
            raise Refused(422, f"fixture must be the name of a fixture, got {fixture!r:.200}")
        with contract():
            try:
                return describe(self._cloud._start(fixture, settings))
            except OSError as error:
                raise Refused(422, f"{fixture} cannot start at this address: {error}") from error

    def get_handle(self, request: Request) -> HandleEntry:
        """Return one fake: its address, credentials and environment variables."""
        return describe(named(self._cloud, request))

    def close_handle(self, request: Request) -> Closed:
        """Close a fake."""
        named(self._cloud, request).close()
        return {"closed": True}

    def send_request(self, request: Request) -> dict[str, Any]:
        """Send a request to a fake like a client: ``{"method", "target", "headers", "body"}``.

        The request carries the fake's credentials unless ``headers`` sets others, is subject to
        injected faults, and is recorded. A string ``body`` is sent unchanged, any other value as
        JSON. Returns ``{"status", "headers", "body"}``, or ``{"broken"}`` for a broken connection.
        """
        body = fields(request)
        with contract():
            return send(named(self._cloud, request), **body)

    # -- faults ----------------------------------------------------------------------------------

    def get_faults(self, request: Request) -> list[Fault]:
        """Return the injected faults of a fake."""
        return [self._fault(fault) for fault in named(self._cloud, request).faults]

    def _number_of(self, fault: InjectedFault) -> int:
        number = self._numbers.get(fault)
        if number is None:
            number = self._numbers[fault] = next(self._next_number)
        return number

    def _fault(self, fault: InjectedFault) -> Fault:
        rule = rule_of(fault)
        where = rule.facts if rule.route is None else {"route": rule.route, **rule.facts}
        return {
            "id": self._number_of(fault),
            "kind": fault.kind,
            "text": repr(fault),
            "description": rule.description,
            "where": {name: str(wanted) for name, wanted in where.items()},
            "times": rule.times,
            "skip": rule.skip,
            "hits": fault.hits,
            "active": fault.active,
        }

    def add_fault(self, request: Request) -> Fault:
        """Inject a fault: ``{"kind": "respond", "args": [503], "times": 1, "route": "publish"}``."""
        body = fields(request, allow_others=True)
        plan = named(self._cloud, request).faults
        kind = body.pop("kind", None)
        arguments = body.pop("args", [])
        kinds = fault_kinds(type(plan))
        if not isinstance(kind, str) or kind not in kinds:
            raise Refused(422, unknown_name("fault", kind, kinds))
        if not isinstance(arguments, list):
            raise Refused(422, f"args must be a list, got {arguments!r}")
        prepare = getattr(plan, kind)
        try:
            inspect.signature(prepare).bind(*arguments, **body)
        except TypeError as error:
            raise Refused(422, f"{kind}: {error}. {_form(prepare)}") from None
        with contract():
            return self._fault(prepare(*arguments, **body))

    def clear_faults(self, request: Request) -> list[Fault]:
        """Remove all faults of a fake."""
        named(self._cloud, request).faults.clear()
        return []

    def remove_fault(self, request: Request) -> Fault:
        """Remove one fault."""
        wanted = whole_number("id", request.params["id"])
        for fault in named(self._cloud, request).faults:
            if self._number_of(fault) == wanted:
                fault.remove()
                return self._fault(fault)
        raise Refused(404, f"there is no fault {wanted}")


def describe(handle: Handle) -> HandleEntry:
    """Return a fake's address and credentials without opening a port."""
    return {
        "name": handle.name,
        "fixture": handle.fixture,
        "service": handle.service,
        "url": handle.url,
        "env": handle._env_variables(),
        "headers": handle.headers,
    }


def _form(method: Callable[..., Any]) -> str:
    """Return a description of how to call a method through the control API."""
    parameters = inspect.signature(method).parameters.values()
    args = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    keywords += ["times", "skip", "route", "command", "topic"]
    taken = f"It takes args [{', '.join(args)}] and" if args else "It takes no args, but"
    return f"{taken} the fields {', '.join(keywords)}"


def send(
    handle: Handle,
    method: object = "POST",
    target: object = "/",
    headers: object = None,
    body: object = "",
) -> dict[str, Any]:
    """Send a request to a fake with its credentials, and return the response as plain JSON.

    The request goes through the fake's whole pipeline, including faults and journal, but not
    through a socket. Raises ``ContractError`` for an invalid request, and for a stream.
    """
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise ContractError(f"method must be a word such as 'POST', got {method!r:.100}")
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise ContractError(
            f"target must be a path that begins with / and is percent-encoded, got {target!r:.100}"
        )
    request = Request(method, target, _headers(handle, headers), _sent(body), ("127.0.0.1", 0))
    answer = handle._app.answer(request)
    if isinstance(answer, Answer):
        found = answer.body if isinstance(answer.body, bytes) else _sent(answer.body)
        return {
            "status": answer.status,
            "headers": [list(pair) for pair in answer.headers],
            "body": found.decode("utf-8", "replace"),
        }
    if isinstance(answer, Effect):
        return {"broken": answer.kind}
    # The stream has no reader, so end it like one whose client disconnected.
    answer.end()
    raise ContractError("the response is an endless stream: request it with a client")


def _headers(handle: Handle, given: object) -> list[tuple[str, str]]:
    if given is not None and not isinstance(given, Mapping):
        raise ContractError(f"headers must be an object, got {given!r:.100}")
    wanted: dict[str, str] = {}
    for name, value in (given or {}).items():
        if not isinstance(value, str) or not TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ContractError(
                f"{name!r:.100}: {value!r:.100} is not a header: pass strings without line breaks"
            )
        wanted[name] = value
    lower = {name.lower() for name in wanted}
    own = {name: value for name, value in handle.headers.items() if name.lower() not in lower}
    return [*own.items(), *wanted.items()]


def _sent(body: object) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
