"""Writes environment variables to ``.env`` files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import ContractError
from ..files import read_file

_PLAIN = re.compile(r"[\w.:/@+=%-]*")
_NOT_IN_SINGLE_QUOTES = re.compile(r"['\n\r]|\\\\|\\$")
"""Some programs read two backslashes as one, and one at the end as an escaped quote."""
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\\n\r]')
_STATEMENT = re.compile(
    r"""(?P<before>\ufeff?[ \t]*(?:export[ \t]+)?)(?P<name>\w+)[ \t]*=[ \t]*
        (?:'[^']*'|"(?:[^"\\]|\\.)*"|`[^`]*`)?[^\n]*|[^\n]*""",
    re.VERBOSE | re.DOTALL,
)
"""An assignment, whose quoted value may have several lines, or another line, without its end.

Only a line feed ends a line: programs that read these files keep all other characters in values.
"""


def write_dotenv(path: Path, variables: Mapping[str, str]) -> None:
    """Write the variables to a ``.env`` file that only its owner can read.

    Keeps every byte of the other lines, and the line endings and ``export`` of the file. The file
    is replaced at once, so that an error loses nothing. Raises ``ContractError`` if the file cannot
    be read or written, or cannot represent a value.
    """
    try:
        text = read_file(path).decode("utf-8") if path.exists() else ""
    except ValueError:
        raise ContractError(f"{path} is not UTF-8: pass another file") from None
    end = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    missing = dict(variables)
    kept: list[str] = []
    at = 0
    while at < len(text):
        found = _STATEMENT.match(text, at)
        assert found is not None  # the second alternative matches every line
        at = found.end() + 1
        name = found["name"]
        if name is None or name not in variables:
            kept.append(text[found.start() : at])
        elif name in missing:
            kept.append(found["before"] + _assignment(name, missing.pop(name)) + end)
    if missing and kept and not kept[-1].endswith("\n"):
        kept.append(end)
    kept += [_assignment(name, value) + end for name, value in missing.items()]
    try:
        _replace(path.resolve(), "".join(kept).encode("utf-8"))
    except OSError as error:
        raise ContractError(f"cannot write {path}: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file by a new one that only its owner can read, or leave it as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Such a file has mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _assignment(name: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return f"{name}={value}"
    if not _NOT_IN_SINGLE_QUOTES.search(value):
        return f"{name}='{value}'"
    if not _NOT_IN_DOUBLE_QUOTES.search(value):
        return f'{name}="{value}"'
    raise ContractError(
        f"{name} cannot be written to a .env file, because programs read quotes, $, ` and backslashes "
        "in its value differently: choose a value without them"
    )
