"""Validation of the ini settings and options of a run, before its first test."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from .options import folder_of, is_set_to, kinds_of, switch_of

CHOICES = {
    "fakecloud_call_sites": ("auto", "true", "false"),
    "fakecloud_clock": ("running", "frozen"),
    "fakecloud_scope": ("function", "class", "module", "session"),
    "fakecloud_transport": ("socket", "inprocess"),
}
"""Ini settings with a list of values, the default first."""
SWITCHES = ("fakecloud_env", "fakecloud_share_tls_context")
"""Ini settings that are true or false."""
FOLDERS = ("--fakecloud-record", "--fakecloud-report")
"""Options that name a folder to write to."""


def check_settings(config: pytest.Config) -> None:
    """Reject invalid ini settings, whether or not a test uses fakes."""
    for name, known in CHOICES.items():
        value = config.getini(name)
        if value not in known:
            raise pytest.UsageError(f"{name} = {value} is unknown: pass {' or '.join(known)}")
    for name in SWITCHES:
        try:
            config.getini(name)
        except (ValueError, pytest.UsageError) as error:
            raise pytest.UsageError(f"{name}: {error}; pass true or false") from None
    _check_contradictions(config)
    _check_strict(config.getini("fakecloud_strict"))
    for option in FOLDERS:
        folder = folder_of(config, option)
        if folder is not None:
            _check_folder(option, folder)
    if config.getoption("--fakecloud-record", None):
        _check_recordings()


def _check_contradictions(config: pytest.Config) -> None:
    if not config.getini("fakecloud_early"):
        return
    for scope in CHOICES["fakecloud_scope"]:
        if scope != "session" and is_set_to(config, "fakecloud_scope", scope):
            raise pytest.UsageError(
                f"fakecloud_early and fakecloud_scope = {scope} contradict each other: fakes that "
                "start before the first test last for the whole run. Remove one of the two settings"
            )


def _check_strict(text: str) -> None:
    # Look kinds up only if necessary: a run without fakes never imports their modules.
    if switch_of(text) is None:
        try:
            kinds_of(text)
        except pytest.fail.Exception as error:
            raise pytest.UsageError(f"fakecloud_strict: {error.msg}") from None


def _check_folder(option: str, folder: Path) -> None:
    try:
        place = _nearest(folder)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {error}") from None
    if not place.is_dir():
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {place} is a file")


def _check_recordings() -> None:
    from ..cloud import archive_writer
    from ..core.errors import ContractError

    try:
        archive_writer("--fakecloud-record")
    except ContractError as error:
        raise pytest.UsageError(str(error)) from None


def _nearest(place: Path) -> Path:
    for each in (place, *place.parents):
        # Path.exists() would also hide other errors.
        with suppress(FileNotFoundError, NotADirectoryError):
            each.stat()
            break
    return each
