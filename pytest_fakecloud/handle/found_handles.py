"""Lists of fakes that tests can filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..core.field_types import FLAG, TEXT, URL, one_of
from ..core.found import Found, found_of
from ..core.matching import Field

if TYPE_CHECKING:
    from .handle import Handle

HANDLE_FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("name", "fixture", "service", "token"), Field(TEXT)),
    "url": Field(URL),
    "closed": Field(FLAG),
}


def found_handles(handles: Iterable[Handle]) -> Found[Handle]:
    """Return a list of fakes whose ``where()`` rejects unknown names and services."""
    found = list(handles)
    names = {
        name: Field(
            one_of(f"{name} of a fake here", sorted({getattr(each, name) for each in found}))
        )
        for name in ("name", "fixture", "service")
        if found
    }
    return found_of(found, {**HANDLE_FIELDS, **names}, "handle")
