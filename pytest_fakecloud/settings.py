"""The settings of a fake: which there are, and whether a value can be one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from .core.errors import ContractError, shown
from .core.matching import nearest

__all__ = ["MOST_PORT", "PLACE_SETTINGS", "PlaceSettings", "check_settings", "setting_names"]


class PlaceSettings(TypedDict, total=False):
    """What every handle takes besides its own settings: where it stands, and how one gets in."""

    host: str | None
    """The address to listen on; loopback unless given."""
    port: int | None
    """The port to listen on; any free one unless given."""
    token: str | None
    """The credential clients show; a random one unless given."""


PLACE_SETTINGS = tuple(PlaceSettings.__annotations__)
MOST_PORT = 65_535
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "None": ("None", lambda value: value is None),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("a text", lambda value: isinstance(value, str)),
    "Sequence": (
        "a list of texts",
        lambda value: isinstance(value, list | tuple) and _texts(value),
    ),
    "Iterable": ("a list of texts", lambda value: isinstance(value, Iterable) and _texts(value)),
    "Mapping": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""What a value of each part of an annotation is, in words and as a test."""
_PART = re.compile(r"(\w+)(?:\[[^\]]*(?:\[[^\]]*\][^\]]*)*\])?(?: \| |$)")


_known: dict[type[Any], Mapping[str, str]] = {}


def _annotations(handle_class: type[Any]) -> Mapping[str, str]:
    found = _known.get(handle_class)
    if found is None:
        parameters = inspect.signature(handle_class.__init__).parameters.values()
        found = {p.name: _words(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}
        _known[handle_class] = found
    return found


def _words(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def setting_names(handle_class: type[Any]) -> tuple[str, ...]:
    """The keyword settings a handle takes."""
    return tuple(_annotations(handle_class))


def check_settings(fixture: str, handle_class: type[Any], settings: Mapping[str, Any]) -> None:
    """Raise ``ContractError`` for names that are not settings of a handle, and for unusable values.

    Checked here is what a wrong type would turn into something else without a word: ``"no"`` for a
    switch, a text for a list of texts, a place that is none. What is more particular (a number's
    range, the names there are) the handles check.
    """
    annotations = _annotations(handle_class)
    known = [*annotations, *PLACE_SETTINGS]
    unknown = sorted(set(settings) - set(known), key=shown)
    if unknown:
        raise ContractError(
            f"{fixture} has no setting {', '.join(map(shown, unknown))}"
            f"{nearest(str(unknown[0]), known)}; it has: {', '.join(known)}"
        )
    for name, value in settings.items():
        if value is None and name in PLACE_SETTINGS:
            continue
        if name == "port":
            if type(value) is not int or not 0 <= value <= MOST_PORT:
                raise ContractError(
                    f"port={shown(value)} of {fixture} must be 0 (any free) to {MOST_PORT}"
                )
        elif name in (*PLACE_SETTINGS, "name"):
            if value is not None and (not isinstance(value, str) or not value):
                raise ContractError(
                    f"{name}={shown(value)} of {fixture} must be a text that is not empty"
                )
            if name == "token" and value is not None and not value.isprintable():
                raise ContractError(f"token={shown(value)} of {fixture}: no header can hold that")
        else:
            _check_type(fixture, name, value, annotations[name])


def _check_type(fixture: str, name: str, value: Any, annotation: str) -> None:
    parts = [match[1] for match in _PART.finditer(annotation)]
    if not parts or not all(part in _TYPES for part in parts):
        return
    if any(_TYPES[part][1](value) for part in parts):
        return
    wanted = " or ".join(dict.fromkeys(_TYPES[part][0] for part in parts))
    raise ContractError(f"{name}={shown(value)} of {fixture} must be {wanted}")


def _texts(value: Iterable[Any]) -> bool:
    """Return whether it can be many texts; what can be looked at only once is not looked at."""
    if isinstance(value, str | bytes | Mapping):
        return False
    return not isinstance(value, list | tuple) or all(isinstance(item, str) for item in value)
