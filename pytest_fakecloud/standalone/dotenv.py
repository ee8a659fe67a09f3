"""Writes environment variables to ``.env`` files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import ContractError
from ..files import read_file
from ..reporting.private_files import write_private

_PLAIN = re.compile(r"[\w.:/@+=%-]*")
_NOT_IN_SINGLE_QUOTES = re.compile(r"['\n\r]|\\\\|\\$")
"""Some programs read two backslashes as one, and one at the end as an escaped quote."""
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\\n\r]')
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)\s*=")


def write_dotenv(path: Path, variables: Mapping[str, str]) -> None:
    """Write the variables to a ``.env`` file that only its owner can read; keep its other lines.

    Raises ``ContractError`` if the file cannot be read or written, or cannot represent a value.
    """
    try:
        lines = read_file(path).decode("utf-8").splitlines() if path.exists() else []
    except ValueError:
        raise ContractError(f"{path} is not UTF-8: pass another file") from None
    missing = dict(variables)
    kept = []
    for line in lines:
        found = _ASSIGNMENT.match(line)
        if found is None or found[1] not in variables:
            kept.append(line)
        elif found[1] in missing:
            kept.append(_assignment(found[1], missing.pop(found[1])))
    kept += [_assignment(name, value) for name, value in missing.items()]
    try:
        write_private(path, "\n".join([*kept, ""]))
    except OSError as error:
        raise ContractError(f"cannot write {path}: {error.strerror}") from None


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
