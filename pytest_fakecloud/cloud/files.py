"""Read files given by the user, only regular ones of a limited size, and replace files as a whole."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from ..core.errors import ContractError

MOST_BYTES = 128 << 20
"""Default size limit in bytes: parsing a whole file can take 40 times its size in memory."""
DATA_BYTES = 1 << 30
"""Size limit in bytes for data files, which are read piece by piece (record, line or array)."""


def open_file(path: str | PathLike[str], most: int = MOST_BYTES) -> BinaryIO:
    """Open a regular file of at most ``most`` bytes for reading; raise ``ContractError`` for
    others, and for a folder, a pipe or a device, where reading may never end.
    """
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except (OSError, ValueError) as error:  # a name with a NUL character raises ValueError
        # Use only the reason, because the message already contains the file's name.
        reason = getattr(error, "strerror", None) or error
        raise ContractError(f"{_cannot(path)}: {reason}") from None
    state = os.fstat(file.fileno())
    if stat.S_ISREG(state.st_mode) and state.st_size <= most:
        return file
    file.close()
    if not stat.S_ISREG(state.st_mode):
        raise ContractError(f"{_cannot(path)}: it is not a regular file")
    raise _too_large(path, state.st_size, most)


def read_file(path: str | PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; raises like ``open_file()``."""
    with open_file(path, most) as file:
        try:
            # A file can grow after the check, as some in /proc do.
            data = file.read(most + 1)
        except OSError as error:
            raise ContractError(f"{_cannot(path)}: {error.strerror or error}") from None
    if len(data) > most:
        raise _too_large(path, len(data), most)
    return data


def read_json(path: str | PathLike[str], kind: str) -> Any:
    """Return the JSON of a file; ``kind`` describes the file in errors (``"an HTTP archive"``).

    Raises ``ContractError`` for a file that is not JSON, and like ``open_file()``.
    """
    try:
        # Use utf-8-sig, because some tools write a byte order mark.
        return json.loads(read_file(path, DATA_BYTES).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{path} is not {kind}: {error!r:.200}") from error


def _too_large(path: str | PathLike[str], size: int, most: int) -> ContractError:
    return ContractError(f"{_cannot(path)}: it has {size} bytes, and at most {most} are read")


def _cannot(path: str | PathLike[str]) -> str:
    return f"cannot read {os.fspath(path)!r:.200}{in_working_folder()}"


def working_folder() -> str:
    """Return the path of the working directory; empty if a test or another process has deleted it."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def in_working_folder() -> str:
    """Return the working directory in brackets, for an error about a relative path."""
    folder = working_folder()
    return f" (in {folder!r:.200})" if folder else ""


def local_path(file: str | PathLike[str]) -> str:
    """Return the path of a file relative to the working directory, if the file is below that."""
    path, folder = PurePath(file), working_folder()
    return str(path.relative_to(folder) if folder and path.is_relative_to(folder) else path)


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def replace_file(path: Path, content: bytes) -> None:
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
