"""The page of the public names: which there are, in groups; Sphinx adds their docstrings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType

import pytest_fakecloud

from .markdown import HEAD, alias_docs, first_sentence, inline, table

__all__ = ["page"]

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "The cloud": ("cloud", "any_cloud", "standalone.remote"),
    "Every handle": ("handle",),
    "Time": ("core.clock", "core.timers", "core.timeparse"),
    "Key-value": ("kv.",),
    "Vector": ("vector.",),
    "Broker": ("broker.",),
    "Queue": ("queue.handle", "queue.model", "queue.views", "queue.errors", "queue.settings"),
    "Deliveries and callbacks": ("queue.delivery.", "queue.capture."),
    "Faults": ("faults.", "failures"),
    "Exploring": ("explore.",),
    "What happened": ("core.journal", "core.found", "http.", "recordings"),
    "Problems and errors": ("",),
}
"""Headings, and the modules whose names stand below each; the first that fits."""


def page() -> str:
    """The whole page in Markdown."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield (
        f"{HEAD}\n# API\n\nAll names that can be imported from `pytest_fakecloud`. All else "
        "may change without notice; `help(pytest_fakecloud)` shows the same map in an interpreter.\n"
    )
    left = dict(pytest_fakecloud._HOMES)
    for title, places in _GROUPS.items():
        names = [name for name, home in left.items() if home.startswith(places)]
        for name in names:
            del left[name]
        yield f"\n## {title}\n\n"
        classes = [name for name in names if isinstance(getattr(pytest_fakecloud, name), type)]
        yield table(
            ("Name", "What it is"),
            ((f"[`{name}`](#{_target(name)})", _about(name)) for name in names),
        )
        for name in names:
            yield f"\n({_target(name)})=\n### `{name}`\n\n"
            if name in classes:
                yield _class(name)
            elif isinstance(getattr(pytest_fakecloud, name), FunctionType):
                yield f"```{{eval-rst}}\n.. autofunction:: pytest_fakecloud.{name}\n```\n"
            else:
                yield f"{_about(name)}\n\n`{getattr(pytest_fakecloud, name)}`\n"


def _target(name: str) -> str:
    return f"api-{name.lower()}"


def _about(name: str) -> str:
    value = getattr(pytest_fakecloud, name)
    if isinstance(value, type | FunctionType):
        return first_sentence(value.__doc__)
    return inline(alias_docs(pytest_fakecloud._HOMES[name])[name])


def _class(name: str) -> str:
    value = getattr(pytest_fakecloud, name)
    members = (
        "" if _is_settings(value) else "   :members:\n   :inherited-members: " + _BUILT_IN + "\n"
    )
    return f"```{{eval-rst}}\n.. autoclass:: pytest_fakecloud.{name}\n{members}```\n"


_BUILT_IN = "list, tuple, dict, str, Exception, AssertionError, Warning, UserWarning"


def _is_settings(value: object) -> bool:
    return hasattr(value, "__total__")
