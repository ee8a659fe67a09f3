"""The configuration parameters of one server, as CONFIG GET and CONFIG SET access them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from .. import errors
from ..algorithms.glob import matcher
from ..errors import CommandError
from .config_parameters import HIDDEN, PARAMETERS
from .registry import EVERYTHING, Table
from .syntax import decoded

_ALIASES = {
    "hash-max-ziplist-entries": "hash-max-listpack-entries",
    "hash-max-ziplist-value": "hash-max-listpack-value",
    "list-max-ziplist-size": "list-max-listpack-size",
    "zset-max-ziplist-entries": "zset-max-listpack-entries",
    "zset-max-ziplist-value": "zset-max-listpack-value",
    "lua-time-limit": "busy-reply-threshold",
}


class Config:
    """The configuration parameters of one server. Values are stored as strings."""

    def __init__(
        self, dialect: str = "vendor", table: Table = EVERYTHING, *, debug_command: bool = False
    ) -> None:
        # All servers share this dictionary until a parameter is first changed.
        self._texts = _VENDOR_DEFAULTS if dialect == "vendor" else _defaults(table)
        if debug_command:
            self._texts = {**self._texts, "enable-debug-command": "yes"}
        self._numbers: dict[str, int] = {}
        self.packs_lists_and_sets = table.knows["lists and sets are listpacks"]
        """Whether lists and sets can have the encoding ``listpack``."""
        self.slow_threshold_us = 0
        """Microseconds below which a command is neither slow nor a latency event."""
        self._refresh()

    def number(self, name: str) -> int:
        """Return the value of an integer parameter, such as ``zset-max-listpack-entries``."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = int(self._texts[name])
        return found

    def text(self, name: str) -> str:
        """Return the value of a parameter as CONFIG GET shows it."""
        return self._texts[name]

    def matching(self, pattern: bytes) -> list[tuple[str, str]]:
        """Return the names and values of the parameters that match a case-insensitive glob pattern."""
        matches = matcher(pattern, nocase=True)
        exact_name = pattern.decode("latin-1").lower()
        return [
            (name, _as_config_get_shows(name, text))
            for name, text in self._texts.items()
            if matches(name.encode()) and (name not in HIDDEN or name == exact_name)
        ]

    def change(
        self,
        pairs: list[tuple[bytes, bytes]],
        check: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Change parameters, or none if one is invalid; ``check`` may reject the parsed values."""
        given: dict[str, str] = {}
        for raw_name, raw_value in pairs:
            name = raw_name.decode("latin-1").lower()
            if name not in self._texts:
                raise CommandError(errors.unknown_config(raw_name))
            refusal = PARAMETERS[name].refusal
            if refusal:
                raise CommandError(errors.config_failed(name, refusal))
            if name in given:
                raise CommandError(errors.config_failed(name, errors.CONFIG_DUPLICATE))
            given[name] = decoded(raw_value)
        changes: dict[str, str] = {}
        for name, value in given.items():
            try:
                changes[name] = PARAMETERS[name].parse(value, self._texts[name])
            except ValueError as error:
                raise CommandError(errors.config_failed(name, str(error))) from None
        if check is not None:
            check(changes)
        texts = dict(self._texts)
        for name, text in changes.items():
            spellings = (each for each in PARAMETERS if _main_name(each) == _main_name(name))
            texts.update(dict.fromkeys(spellings, text))
        self._texts = texts
        self._refresh()

    def snapshot(self) -> Mapping[str, str]:
        return self._texts

    def restore(self, saved: Mapping[str, str]) -> None:
        self._texts = saved
        self._refresh()

    def _refresh(self) -> None:
        """Update what is derived from the parameters."""
        self._numbers.clear()
        self.slow_threshold_us = _slow_threshold_us(
            int(self._texts["slowlog-log-slower-than"]),
            int(self._texts["latency-monitor-threshold"]),
        )


def _slow_threshold_us(slowlog_us: int, latency_event_ms: int) -> int:
    """Return the lower of both thresholds. A negative one, or 0 for latency events, is disabled."""
    thresholds = [slowlog_us] if slowlog_us >= 0 else []
    thresholds += [latency_event_ms * 1000] if latency_event_ms else []
    return min(thresholds, default=2**63)


def _as_config_get_shows(name: str, text: str) -> str:
    # In the value of this parameter, Redis omits "n" after "A", although it sends events for new
    # keys.
    return text.replace("An", "A") if name == "notify-keyspace-events" else text


def _main_name(name: str) -> str:
    """Return the current name of a renamed parameter."""
    renamed = name.replace("slave", "replica")
    return _ALIASES.get(name, renamed if renamed in PARAMETERS else name)


@cache
def _defaults(table: Table) -> Mapping[str, str]:
    knows = table.knows
    return MappingProxyType(
        {
            name: parameter.default
            for name, parameter in PARAMETERS.items()
            if knows.get(f"CONFIG {name}", True)
        }
    )


_VENDOR_DEFAULTS = MappingProxyType(
    {**{name: parameter.default for name, parameter in PARAMETERS.items()}, "databases": "1"}
)
