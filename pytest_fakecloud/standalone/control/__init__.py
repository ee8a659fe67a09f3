"""The control API, one module per resource. Here is what their endpoints share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError, ServiceError, unknown_name
from ...http.messages import Request, json_value
from .shapes import body_fields

if TYPE_CHECKING:
    from ...cloud import Cloud
    from ...handle import Handle

PREFIX = "/__control__"


class Refused(ServiceError):
    """Raised for a request that the control API rejects."""


def handle_named(cloud: Cloud, name: str) -> Handle:
    """Return the open handle with this name, or raise ``Refused`` with the valid names."""
    for handle in cloud.fakes():
        if handle.name == name:
            return handle
    raise Refused(404, unknown_name("fake", name, [handle.name for handle in cloud.fakes()]))


def named(cloud: Cloud, request: Request) -> Handle:
    """Return the handle that the path of a request names."""
    return handle_named(cloud, request.segment("name"))


@contextlib.contextmanager
def contract(status: int = 422) -> Iterator[None]:
    try:
        yield
    except (ContractError, TypeError) as error:
        raise Refused(status, str(error)) from error


def fields(request: Request, *, allow_others: bool = False) -> dict[str, Any]:
    """Return the fields of the body; raise ``Refused`` for a field that its type does not have."""
    if not request.body:
        return {}
    try:
        body = json_value(request.body)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused(422, f"the body must be a JSON object, got {body!r}")
    known = body_fields(request.route)
    unknown = [name for name in body if name not in known]
    if unknown and not allow_others:
        raise Refused(422, unknown_name("field of this request", unknown[0], known))
    return body
