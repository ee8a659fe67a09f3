"""Parts shared by all endpoints of the control API: fakes by name, fields of bodies, rejections."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...core.errors import ContractError, ServiceError, unknown_name
from ...core.json_schema import violations
from ...http.messages import Answer, Request, json_value
from ...http.routing import Route
from .shapes import body_schema

if TYPE_CHECKING:
    from ..api import ControlApp

PREFIX = "/__control__"


class Refused(ServiceError):
    """Raised for a request that the control API rejects."""


class Part:
    """An object with endpoints of the control API. `ControlApp` has one of each class."""

    @classmethod
    def routes(cls) -> list[Route]:
        raise NotImplementedError

    @classmethod
    def route(
        cls,
        methods: str,
        pattern: str,
        name: str,
        method: Callable[[Self, Request], object],
        *,
        lingers: bool = False,
    ) -> Route:
        """Return a route that calls a method of this part, whose docstring and type describe it."""

        @wraps(method)
        def endpoint(app: ControlApp, request: Request) -> object:
            return method(app.part(cls), request)

        return Route(methods, pattern, name, endpoint, lingers)


def fake_named(cloud: Cloud, name: str) -> Fake:
    """Return the open fake with this name, or raise ``Refused`` with the valid names."""
    for fake in cloud.fakes():
        if fake.name == name:
            return fake
    raise Refused(404, unknown_name("fake", name, [fake.name for fake in cloud.fakes()]))


def named(cloud: Cloud, request: Request) -> Fake:
    return fake_named(cloud, request.segment("name"))


@contextlib.contextmanager
def contract(status: int = 422) -> Iterator[None]:
    try:
        yield
    except (ContractError, TypeError) as error:
        raise Refused(status, str(error)) from error


def fields(request: Request, *, allow_others: bool = False) -> dict[str, Any]:
    """Return the fields of the body; raise ``Refused`` unless they have the types in `shapes`.

    An optional field that is null is left out. With ``allow_others``, there may be further fields.
    """
    try:
        body = json_value(request.body) if request.body else {}
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    schema = body_schema(request.route)
    if isinstance(body, dict):
        optional = schema["properties"].keys() - schema["required"]
        left_out = [name for name in optional if name in body and body[name] is None]
        body = {name: value for name, value in body.items() if name not in left_out}
    for wrong in violations(body, {**schema, "additionalProperties": allow_others}, "the body"):
        raise Refused(422, wrong)
    members: dict[str, Any] = body
    return members


_GZIP = re.compile(r"(?i)(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))")
"""An ``Accept-Encoding`` header that accepts gzip: ``q=0`` rejects an encoding."""


def compressed(
    request: Request, body: bytes, packed: Callable[[], bytes], content_type: str
) -> Answer:
    """Return a response with a body, which ``packed`` compresses if the request accepts gzip."""
    headers = [("Vary", "Accept-Encoding")]
    if not _GZIP.search(request.fields.get("accept-encoding") or ""):
        return Answer(body, headers=headers, content_type=content_type)
    headers.insert(0, ("Content-Encoding", "gzip"))
    return Answer(packed(), headers=headers, content_type=content_type)
