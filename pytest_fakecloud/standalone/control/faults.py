"""Endpoints of the faults of a fake."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.wording import unknown_name
from ...faults.fault import rule_of
from ...faults.plan import FaultPlan, fault_words
from ...http.messages import Request
from ...http.routing import Route
from ..codec import Objects
from .requests import PREFIX, Refused, contract, fields, named, whole_number
from .shapes import Fault

if TYPE_CHECKING:
    from ...cloud import Cloud


class FaultRoutes:
    """Endpoints that add, list and remove the faults of a fake."""

    def __init__(self, cloud: Cloud, objects: Objects) -> None:
        self._cloud = cloud
        self._objects = objects

    def routes(self) -> list[Route]:
        faults = f"{PREFIX}/handles/{{name}}/faults"
        return [
            Route("GET", faults, "faults", self.get_faults),
            Route("POST", faults, "add_fault", self.add_fault),
            Route("DELETE", faults, "clear_faults", self.clear_faults),
            Route("DELETE", f"{faults}/{{id}}", "remove_fault", self.remove_fault),
        ]

    def get_faults(self, request: Request) -> list[Fault]:
        """Return the injected faults of a fake."""
        return [self._fault(fault) for fault in named(self._cloud, request).faults]

    def _fault(self, fault: Any) -> Fault:
        rule = rule_of(fault)
        where = rule.facts if rule.route is None else {"route": rule.route, **rule.facts}
        return {
            "id": self._objects.keep(fault),
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
        """Inject a fault: ``{"kind": "answer", "args": [503], "times": 1, "route": "publish"}``."""
        body = fields(request)
        plan = named(self._cloud, request).faults
        kind = body.pop("kind", None)
        arguments = body.pop("args", [])
        kinds = _fault_kinds(type(plan))
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
        wanted = whole_number(request.params["id"])
        for fault in named(self._cloud, request).faults:
            if self._objects.keep(fault) == wanted:
                fault.remove()
                return self._fault(fault)
        raise Refused(404, f"there is no fault {wanted}")


def _fault_kinds(plan: type[FaultPlan]) -> list[str]:
    """Return the names of the methods that inject a fault, except ``call()``, which takes a
    function.
    """
    return [name for name in fault_words(plan) if name != "call"]


def _form(method: Callable[..., Any]) -> str:
    """Return a description of how to call a method through the control API."""
    parameters = inspect.signature(method).parameters.values()
    args = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    fields = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    fields += ["times", "skip", "route", "command", "topic"]
    taken = f"It takes args [{', '.join(args)}] and" if args else "It takes no args, but"
    return f"{taken} the fields {', '.join(fields)}"
