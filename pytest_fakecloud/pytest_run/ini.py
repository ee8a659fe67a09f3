"""The ini settings and options of a run: their values, and the check of all of them.

Every pytest run imports this module to check them, so it imports next to nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ..core.errors import ContractError, unknown_name
from ..core.settings import SWITCH_WORDS

CHOICES = {
    "fakecloud_clock": ("running", "frozen"),
    "fakecloud_scope": ("function", "class", "module", "session"),
    "fakecloud_transport": ("socket", "inprocess"),
}
"""Ini settings with a list of values, the default first. An empty string also means the default."""


def ini_value(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini setting. In TOML, it may be a boolean, a number, a string or a list,
    whichever of them the setting is declared with.
    """
    try:
        return config.getini(name)
    except (TypeError, ValueError, pytest.UsageError):
        # pytest checks the types of values in the table [tool.pytest], but does not convert them.
        ini_entry: Any = getattr(config, "_inicfg", {}).get(name)
        if ini_entry is None:
            raise
        return ini_entry.value


def folder_of(config: pytest.Config, option: str) -> Path | None:
    """Return the folder that an option names, if it is given."""
    folder = config.getoption(option, None)
    return config.invocation_params.dir / folder if folder else None


def words_of(config: pytest.Config, name: str) -> list[str]:
    """Return the words of an ini setting: those of a list, of a string, or of a boolean."""
    value = ini_value(config, name)
    return [str(word) for word in value] if isinstance(value, list) else str(value).split()


def check_run_options(config: pytest.Config) -> None:
    """Reject invalid options and ini settings, whether or not a test uses fakes."""
    for name, choices in CHOICES.items():
        value = ini_value(config, name)
        if value not in ("", *choices):
            raise pytest.UsageError(f"{name} = {value} is unknown: pass {' or '.join(choices)}")
    call_sites_of(config)
    for name in ("fakecloud_env", "fakecloud_share_tls_context"):
        switch_of(config, name)
    scope = ini_value(config, "fakecloud_scope")
    if words_of(config, "fakecloud_early") and scope not in ("", "session"):
        raise pytest.UsageError(
            f"fakecloud_early and fakecloud_scope = {scope} contradict each other: fakes that "
            "start before the first test last for the whole run. Remove one of the two settings"
        )
    strict = strict_words(config)
    # Look kinds up only if necessary: a run without fakes never imports their module.
    if strict.lower() not in SWITCH_WORDS:
        try:
            kinds_of(strict)
        except ContractError as error:
            raise pytest.UsageError(f"fakecloud_strict: {error}") from None
    for option in ("--fakecloud-record", "--fakecloud-report"):
        folder = folder_of(config, option)
        if folder is not None:
            _check_folder(option, folder)
    if config.getoption("--fakecloud-record", None):
        from ..cloud.cloud import archive_writer

        try:
            archive_writer("--fakecloud-record")
        except ContractError as error:
            raise pytest.UsageError(str(error)) from None


def strict_words(config: pytest.Config) -> str:
    """Return ``fakecloud_strict`` as a string."""
    return " ".join(words_of(config, "fakecloud_strict"))


def kinds_of(strict: object) -> tuple[str, ...]:
    """Return the kinds of violations that fail a test, given a boolean, names, or an ini value.

    Raises ``ContractError`` for an unknown kind.
    """
    from ..core.violations import NAMED_KINDS, VIOLATION_KINDS

    if isinstance(strict, str):
        words = strict.lower().replace(",", " ").split()
        strict = SWITCH_WORDS.get(strict.strip().lower(), words)
    if isinstance(strict, bool):
        return tuple(VIOLATION_KINDS) if strict else ()
    kinds = tuple(strict) if isinstance(strict, list | tuple | set | frozenset) else (str(strict),)
    valid_kinds = (*VIOLATION_KINDS, *NAMED_KINDS)
    for kind in kinds:
        if kind not in valid_kinds:
            names = ("True", "False", *valid_kinds)
            raise ContractError(unknown_name("kind of violation", kind, names, "strict"))
    return kinds


def switch_of(config: pytest.Config, name: str, others: str = "") -> bool:
    """Return the value of a setting that is true or false; ``others`` are values besides these."""
    value = ini_value(config, name)
    switch = SWITCH_WORDS.get(str(value).strip().lower())
    if switch is None:
        raise pytest.UsageError(f"{name} = {value} is unknown: pass {others}true or false")
    return switch


def call_sites_of(config: pytest.Config) -> bool | None:
    """Return whether call sites are recorded; None if that depends on the test."""
    if ini_value(config, "fakecloud_call_sites") == "auto":
        return None
    return switch_of(config, "fakecloud_call_sites", "auto, ")


def _check_folder(option: str, folder: Path) -> None:
    """Reject a folder that cannot be created, because the nearest existing place is a file."""
    try:
        for place in (folder, *folder.parents):
            # Path.exists() would also hide other errors.
            with suppress(FileNotFoundError, NotADirectoryError):
                place.stat()
                break
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {error}") from None
    if not place.is_dir():
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {place} is a file")
