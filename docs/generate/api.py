"""Generate the API pages: the public names in groups. Sphinx adds their docstrings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

from pytest_fakecloud import _PART_NAMES, _PUBLIC_NAMES
from pytest_fakecloud.cloud.services import SERVICES, fake_class
from tests.stubs import ITEMS

from .markdown import HEAD, alias_docs, first_sentence, inline, table

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "The cloud": ("cloud.cloud", "cloud.base"),
    "Every fake": ("cloud.fake",),
    "Time": ("core.clock", "core.timers"),
    "Key-value": ("kv.",),
    "Vector": ("vector.",),
    "Broker": ("broker.",),
    "Queue": (
        "queue.fake",
        "queue.actions",
        "queue.model",
        "queue.views",
        "queue.errors",
        "queue.settings",
    ),
    "Deliveries and callbacks": ("queue.delivery.", "queue.capture."),
    "Faults": ("faults.", "explore.values.failures"),
    "Exploring": ("explore.",),
    "Calls and events": ("core.calls", "core.journal", "http.", "recordings"),
    "Violations and errors": ("",),
}
"""Headings, each with the modules whose names it contains. The first match wins."""
_MODULES = _PUBLIC_NAMES | _PART_NAMES
_FIELDS = {kind: fields for items in ITEMS.values() for kind, fields in items.values()}
"""The fields by which the items of each class can be filtered."""


def index() -> str:
    """Return the page that lists all names."""
    parts = [
        f"{HEAD}\n# API\n\nThe names that can be imported from `pytest_fakecloud`. Everything "
        "else may change without notice. `help(pytest_fakecloud)` prints an overview, "
        "`help(pytest_fakecloud.Queue)` the methods of a class with their signatures, and "
        "`help(pytest_fakecloud.Attempt)` also its attributes. The fields that assertions, lists "
        "(`**where`) and faults accept are in the stubs `pytest_fakecloud/_typing/*.pyi`, from which "
        "editors complete them; the error for an unknown field lists them, too.\n\n"
        "Tests get objects of "
        + ", ".join(f"`{name}`" for name in sorted(_PART_NAMES))
        + " from these and need not import their classes.\n\n"
        "```{toctree}\n:hidden:\n\n"
        + "".join(f"api/{_slug(title)}\n" for title in _GROUPS)
        + "```\n"
    ]
    for title, names in _groups().items():
        parts += [
            f"\n## [{title}](api/{_slug(title)}.md)\n\n",
            _names(names, f"api/{_slug(title)}.md"),
        ]
    return "".join(parts)


def pages() -> dict[str, Callable[[], str]]:
    """Return a function for each group's page, by path."""
    return {f"reference/api/{_slug(title)}.md": partial(_page, title) for title in _GROUPS}


def _page(title: str) -> str:
    names = _groups()[title]
    parts = [f"{HEAD}\n# {title}\n\n", _names(names, "")]
    for name in names:
        parts += [f"\n({_target(name)})=\n## `{name}`\n\n", _told(name)]
    return "".join(parts)


def _groups() -> dict[str, list[str]]:
    """Return the names below each heading."""
    left = dict(sorted(_MODULES.items()))
    groups = {}
    for title, places in _GROUPS.items():
        groups[title] = [name for name, home in left.items() if home.startswith(places)]
        for name in groups[title]:
            del left[name]
    return groups


def _names(names: list[str], page: str) -> str:
    rows = ((f"[`{name}`]({page}#{_target(name)})", _about(name)) for name in names)
    return table(("Name", "What it is"), rows)


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def _target(name: str) -> str:
    return f"api-{name.lower()}"


def _value(name: str) -> Any:
    return getattr(import_module(f"pytest_fakecloud.{_MODULES[name]}"), name)


def _about(name: str) -> str:
    value = _value(name)
    if isinstance(value, type | FunctionType):
        return first_sentence(value.__doc__)
    return inline(alias_docs(_MODULES[name])[name])


def _told(name: str) -> str:
    """Return the Sphinx directive for a name's docstring; for a type alias, its text."""
    value = _value(name)
    place = f"{_MODULES[name]}.{name}" if name in _PART_NAMES else name
    if isinstance(value, FunctionType):
        return f"```{{eval-rst}}\n.. autofunction:: pytest_fakecloud.{place}\n```\n"
    if not isinstance(value, type):
        return f"{_about(name)}\n\n`{value}`\n"
    members = link = ""
    if _is_settings(value):
        link = _link_to_settings(name)
    else:
        members = f"   :members:\n   :inherited-members: {_DOCUMENTED_ELSEWHERE}\n"
        if any(map(_is_shown, value.__bases__)):
            members += "   :show-inheritance:\n"
    fields = ", ".join(f"`{field}`" for field in _FIELDS.get(value, ()))
    filters = f"\nFields to filter by: {fields}.\n" if fields else ""
    return (
        f"```{{eval-rst}}\n.. autoclass:: pytest_fakecloud.{place}\n{members}```\n{link}{filters}"
    )


_DOCUMENTED_ELSEWHERE = (
    "Fake, Cloud, Results, FaultPlan, Destination, HTTPServer, ServiceError, list, tuple, dict, "
    "str, BaseException, Exception, AssertionError, OSError, Warning, UserWarning"
)
"""Base classes whose members are documented elsewhere."""


def _is_shown(base: type) -> bool:
    """Return whether a base class is worth showing: a public one, or one of another package."""
    is_ours = base.__module__.partition(".")[0] == "pytest_fakecloud"
    return base.__name__ in _MODULES if is_ours else base is not object


def _is_settings(value: object) -> bool:
    return hasattr(value, "__total__")


def _link_to_settings(name: str) -> str:
    for fixture, service in SERVICES.items():
        if fake_class(service)._config_class.__name__ == name.replace("Settings", "Config"):
            return f"\nEach keyword: [settings of `{fixture}`](../settings.md#{fixture}).\n"
    return ""
