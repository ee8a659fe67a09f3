"""The endpoint through which remote handles are used."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ...http.messages import Request
from ...http.routing import Route
from ..codec import Objects, Unreadable, decode, encode, encode_error
from ..wire import surface_of
from . import PREFIX, Refused, fields, handle_named
from .shapes import Raised, Returned

if TYPE_CHECKING:
    from ...cloud import Cloud

_PROTOCOLS: Mapping[str, Callable[..., Any]] = {
    "__len__": len,
    "__bool__": bool,
    "__iter__": list,
    "__getitem__": operator.getitem,
    "__enter__": lambda target: target.__enter__(),
    "__exit__": lambda target, *error: target.__exit__(*error),
}


class CallRoutes:
    """Endpoint that reads fields and calls methods of the objects that remote handles refer to."""

    def __init__(self, cloud: Cloud, objects: Objects) -> None:
        self._cloud = cloud
        self._objects = objects

    def routes(self) -> list[Route]:
        return [Route("POST", f"{PREFIX}/call", "call", self.call, lingers=True)]

    def call(self, request: Request) -> Returned | Raised:
        """Use a remote object: read a field or call a method.

        ``{"object": number|handle name|null, "name": …, "args": […], "kwargs": {…}, "get": bool}``,
        encoded by the codec; returns ``{"value": …}`` or ``{"raise": …}``. Only the names on the
        object's remote surface are allowed.
        """
        body = fields(request)
        name, get = body.get("name"), body.get("get", False)
        arguments, keywords = body.get("args", []), body.get("kwargs", {})
        if not isinstance(name, str):
            raise Refused(422, f"name must be the name of a field or a method, got {name!r}")
        if not isinstance(arguments, list) or not isinstance(keywords, dict):
            raise Refused(422, "args must be a list, and kwargs an object")
        if not isinstance(get, bool):
            raise Refused(422, f"get must be true or false, got {get!r}")
        arguments = self.decoded(arguments, "args")
        keywords = {key: self.decoded(item, "kwargs") for key, item in keywords.items()}
        try:
            target = self._target(body.get("object"))
        except (Refused, ContractError) as error:
            return {"raise": encode_error(ContractError(str(error)))}
        use = _use(target, name, get)
        try:
            # Encode the value here too, because reading an object's attributes may raise.
            return {"value": encode(use(*arguments, **keywords), self._objects)}
        except Exception as error:
            return {"raise": encode_error(error)}

    def _target(self, wanted: object) -> Any:
        if wanted is None:
            return self._cloud
        if type(wanted) is int:
            return self._objects.get(wanted)
        if isinstance(wanted, str):
            return handle_named(self._cloud, wanted)
        raise Refused(422, f"object must be a number, the name of a handle or null, got {wanted!r}")

    def decoded(self, value: Any, where: str) -> Any:
        """Return a decoded value; raise ``Refused`` if the codec cannot decode it."""
        try:
            return decode(value, lambda number, *_: self._objects.get(number))
        except Unreadable as error:
            raise Refused(400, f"{where} cannot be decoded ({error})") from None
        except ContractError as error:
            raise Refused(422, f"{where}: {error}") from None


def _use(target: Any, name: str, get: bool) -> Callable[..., Any]:
    """Return a function that reads a field, calls a method, or uses a protocol such as iteration."""
    kind, surface = surface_of(type(target))
    if surface is not None:
        if name in surface.protocols:
            return partial(_PROTOCOLS[name], target)
        if name in surface.fields and get:
            return lambda *_, **__: getattr(target, name)
        if name in surface.methods and not get:
            # Look up the method only when it is called, because the look-up may raise too.
            return lambda *args, **kwargs: getattr(target, name)(*args, **kwargs)
    shown = kind.rpartition(":")[2]
    if surface is None or name not in surface.names:
        offered = "nothing" if surface is None else ", ".join(surface.names)
        raise Refused(422, f"{name!r:.100} is private or unknown: {shown} offers {offered}")
    kind = 'a field: pass "get": true' if not get else 'a method: leave "get" out'
    raise Refused(422, f"{name!r} of {shown} is {kind}")
