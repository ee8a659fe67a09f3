"""The ini settings and options of a run: their values, and the check of all of them.

Every pytest run imports this module to check them, so it imports next to nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from ..core.errors import ContractError, unknown_name
from ..core.switches import SWITCH_WORDS


class IniSetting(NamedTuple):
    """An ini setting."""

    help: str
    default: bool | str | list[str]
    """The default. Its type is that of the setting for pytest."""
    choices: tuple[str, ...] = ()
    """The words that are accepted. An empty string means the first one. Without choices, the setting is
    a list of words.
    """

    @property
    def pytest_type(self) -> Literal["bool", "args"] | None:
        """The type of the setting for pytest; None for a string."""
        if isinstance(self.default, bool):
            return "bool"
        return "args" if isinstance(self.default, list) else None


_SWITCH = ("true", "false")
"""The choices of a setting that is true or false. It also accepts the other ``SWITCH_WORDS``."""
INI_SETTINGS: dict[str, IniSetting] = {
    "fakecloud_strict": IniSetting(
        "strict-mode violations that fail a passing test: true, false, or some of "
        "'unrouted unstubbed bug unused_fault unmet rejected_step assertion no_workflow "
        "undelivered'; "
        "true means all except no_workflow and undelivered",
        ["true"],
    ),
    "fakecloud_clock": IniSetting("the clock's mode: running or frozen", "", ("running", "frozen")),
    "fakecloud_env": IniSetting(
        "set the official clients' environment variables in every test that uses a fake",
        False,
        _SWITCH,
    ),
    "fakecloud_call_sites": IniSetting(
        "record the source line of each call for reports: auto (with --fakecloud-report, and in "
        "tests that failed in the last run), true or false",
        "auto",
        ("auto", *_SWITCH),
    ),
    "fakecloud_transport": IniSetting(
        "how clients in the test process reach the fakes: socket, or inprocess (faster; requests, "
        "httpx, httpx2 and urllib3)",
        "socket",
        ("socket", "inprocess"),
    ),
    "fakecloud_share_tls_context": IniSetting(
        "share one TLS context among clients of httpx, and of httpx2, while a fake is open, which "
        "saves some 20 ms for each",
        True,
        _SWITCH,
    ),
    "fakecloud_scope": IniSetting(
        "how long the fixtures' fakes last: function, class, module or session; except with function "
        "they keep their address and credentials and are reset before each test",
        "",
        ("function", "class", "module", "session"),
    ),
    "fakecloud_early": IniSetting(
        "fakes to start, with their environment variables, before conftests and the settings of "
        "the application are imported: some of 'kv_server vector_index broker queue'; "
        "implies fakecloud_scope = session",
        [],
    ),
}


def value_of(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini setting: a list of words, a boolean for "true" and "false", or another
    one of its choices. Raises ``UsageError`` if it is none of these.
    """
    value, choices = given_value(config, name), INI_SETTINGS[name].choices
    if not choices:
        return [str(word) for word in value] if isinstance(value, list) else str(value).split()
    switch = SWITCH_WORDS.get(str(value).strip().lower())
    if switch is not None and "true" in choices:
        return switch
    if value == "":
        return choices[0]
    if value not in choices:
        raise pytest.UsageError(f"{name} = {value} is unknown: pass {' or '.join(choices)}")
    return value


def given_value(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini setting as it is given, or its default. In TOML, it may be a boolean, a
    number, a string or a list, whichever of them the setting is declared with.
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


def check_run_options(config: pytest.Config) -> None:
    """Reject invalid options and ini settings, whether or not a test uses fakes."""
    for name in INI_SETTINGS:
        value_of(config, name)
    scope = given_value(config, "fakecloud_scope")
    if value_of(config, "fakecloud_early") and scope not in ("", "session"):
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
    if traces := config.getoption("--fakecloud-otlp", None):
        _check_traces(config, traces)
    if config.getoption("--fakecloud-record", None):
        from ..cloud.cloud import archive_writer

        try:
            archive_writer("--fakecloud-record")
        except ContractError as error:
            raise pytest.UsageError(str(error)) from None


def _check_traces(config: pytest.Config, traces: str) -> None:
    """Check ``--fakecloud-otlp``, and begin its file, which only its owner can read."""
    from ..core.output_files import make_private
    from .otlp import target_of

    try:
        target = target_of(traces, config.invocation_params.dir)
        # The workers of pytest-xdist append to the file that the run has begun.
        if not target.url and not hasattr(config, "workerinput"):
            make_private(target.file).write_bytes(b"")
    except ContractError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        raise pytest.UsageError(
            f"--fakecloud-otlp: cannot write {target.file}: {error.strerror}"
        ) from None


def strict_words(config: pytest.Config) -> str:
    """Return ``fakecloud_strict`` as a string."""
    return " ".join(value_of(config, "fakecloud_strict"))


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
            raise ContractError(unknown_name("kind of violation", kind, names))
    return kinds


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
