"""Generate the page of settings: of the marker, of each fake, and the limits of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pytest_fakecloud.broker.settings import BrokerConfig, BrokerLimits
from pytest_fakecloud.cloud.config import CloudConfig
from pytest_fakecloud.cloud.services import SERVICES, fake_class
from pytest_fakecloud.core.settings import FakeConfig, settings_of
from pytest_fakecloud.core.timers import Duration, Instant
from pytest_fakecloud.pytest_run.ini import INI_SETTINGS
from pytest_fakecloud.pytest_run.options import TEST_SETTINGS, PerTestConfig
from pytest_fakecloud.queue.settings import PROFILES, PlanLimits, QueueConfig
from pytest_fakecloud.vector.embedding import MODELS
from pytest_fakecloud.vector.settings import VectorConfig, VectorLimits

from .markdown import HEAD, attribute_docs, table

_ENGINES = {"memory": " Not with `engine=`.", "real": " Only with `engine=`.", "both": ""}
_COLUMNS = ("Setting", "Type", "Default", "What it is")
_HEAD = f"""\
{HEAD}
# Settings

The settings of all fakes. The marker, the fixture `fakecloud_settings`, and the methods of
`fakecloud` and `Cloud` that start a fake accept the same names:

```python
import pytest


@pytest.mark.fakecloud(now="2026-01-01T00:00:00Z", kv_server={{"daily_limit": 10}})
def test_with_the_marker(kv_server):
    assert kv_server.client().incr("n") == 1


def test_with_a_method(fakecloud):
    assert fakecloud.kv_server(daily_limit=10).client().incr("n") == 1
```

An unknown setting or an invalid value raises an error that lists the valid ones. A marker on a test
overrides one on its class or module, then `fakecloud_settings`, the command line and the ini file.
Settings of a fake are merged key by key.

A duration is a number of seconds, a string such as `"90s"`, `"1h30m"` or `"7d"`, or a `timedelta`. A
time is an ISO string with an offset, or a `datetime` with a time zone.

## The whole test

"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, table(_COLUMNS, _general())]
    for fixture, service in SERVICES.items():
        declared = fake_class(service)._config_class
        rows = [] if declared is FakeConfig else list(_rows(declared))
        own = table(_COLUMNS, rows) if rows else "It has no settings of its own.\n"
        parts += [f"\n## `{fixture}`\n\n", own, *_limits_of(declared)]
    parts += ["\n## Every fake\n\n", table(_COLUMNS, _rows(FakeConfig))]
    return "".join(parts)


def _general() -> Iterator[tuple[str, ...]]:
    for name, kind, default, meaning in (*_rows(CloudConfig), *_rows(PerTestConfig)):
        word = name.strip("`")
        if word in TEST_SETTINGS:
            ini = f"fakecloud_{word}"
            yield name, kind, f"ini `{ini}`" if ini in INI_SETTINGS else default, meaning


def _rows(declared: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each setting, except those that every fake has. Inherited settings come last."""
    meanings = attribute_docs(declared)
    inherited = settings_of(declared.__base__)
    settings = sorted(settings_of(declared).items(), key=lambda item: item[0] in inherited)
    for name, setting in settings:
        if declared is FakeConfig or name not in settings_of(FakeConfig):
            kind, default = _type(setting.kind.accepts), _literal(setting.default)
            note = _ENGINES[setting.engines] if "engine" in settings_of(declared) else ""
            yield f"`{name}`", f"`{kind}`", f"`{default}`", meanings[setting.attribute] + note


def _type(accepts: Any) -> str:
    """Return an annotation in words that readers of the table know."""
    union = get_origin(accepts) in (Union, UnionType)
    members = set(get_args(accepts)) if union else {accepts}
    parts = []
    for word, kind in {"duration": Duration, "instant": Instant}.items():
        if members >= set(get_args(kind)):
            parts.append(word)
            members -= set(get_args(kind))
    for option in get_args(accepts) if union else [accepts]:
        if option not in members:
            continue
        arguments = get_args(option)
        if get_origin(option) is Literal:
            parts += map(_literal, arguments)
        elif get_origin(option) is Callable:
            parts.append("function")
        elif arguments:
            parts.append(f"{get_origin(option).__name__}[{', '.join(map(_type, arguments))}]")
        else:
            parts.append(
                {None: "None", NoneType: "None", Any: "object"}.get(option) or option.__name__
            )
    return " | ".join(parts)


def _literal(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple) and value:
        return f"({', '.join(map(_literal, value))})"
    return repr(value)


def _limits_of(declared: Any) -> Iterator[str]:
    if declared is VectorConfig:
        yield "\nIts `limits`; None means no limit:\n\n"
        yield table(("Limit", "Default"), _limits(VectorLimits))
        names = ", ".join(f'`"{name}"`' for name in MODELS)
        yield f"\nThe models for `embedding`: {names}.\n"
    elif declared is BrokerConfig:
        yield "\nThe fields of `BrokerLimits`; None means no limit:\n\n"
        yield table(("Limit", "Default"), _limits(BrokerLimits))
        limits = settings_of(BrokerLimits).items()
        names = ", ".join(f"`{name}`" for name, setting in limits if setting.engines == "both")
        yield f"\nThe limits that also apply with `engine=`: {names}.\n"
    elif declared is QueueConfig:
        yield (
            "\nIts `limits`, and their values in the plans of `profile`. Sizes are in bytes; names "
            "that end in `_us` are in microseconds, shown here as days, hours and minutes. None "
            "means no limit:\n\n"
        )
        plans = [PlanLimits(), *PROFILES.values()]
        yield table(
            ("Limit", "no plan", *PROFILES),
            (
                (f"`{name}`", *(_amount(name, getattr(plan, name)) for plan in plans))
                for name in settings_of(PlanLimits)
            ),
        )


def _limits(declared: Any) -> Iterator[tuple[str, str]]:
    for name in settings_of(declared):
        yield f"`{name}`", _amount(name, getattr(declared, name))


def _amount(name: str, value: int | None) -> str:
    if value is None:
        return "None"
    if name.endswith("_us"):
        for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}"
