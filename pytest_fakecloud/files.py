"""Read files given by the user: only regular files of a limited size."""

from __future__ import annotations

import contextlib
import os
import stat
from os import PathLike
from typing import BinaryIO

from .core.errors import ContractError

MOST_BYTES = 128 << 20
"""Default size limit in bytes: parsing a whole file can take 40 times its size in memory."""
DATA_BYTES = 1 << 30
"""Size limit in bytes for data files, which are read piece by piece (record, line or array)."""


def open_file(path: str | PathLike[str], most: int = MOST_BYTES) -> BinaryIO:
    """Open a regular file for reading.

    Raises ``ContractError`` for a file that cannot be opened, is larger than ``most`` bytes, or is
    a folder, a pipe or a device, where reading may never end.
    """
    file = None
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ContractError(f"{_cannot(path)}: it is not a regular file")
        if state.st_size > most:
            raise ContractError(
                f"{_cannot(path)}: it has {state.st_size} bytes, and at most {most} are read"
            )
    except (OSError, ValueError) as error:  # a name with a NUL character raises ValueError
        # Use only the reason, because the message already contains the file's name.
        reason = getattr(error, "strerror", None) or error
        raise ContractError(f"{_cannot(path)}: {reason}") from None
    except ContractError:
        if file is not None:
            file.close()
        raise
    return file


def read_file(path: str | PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; raises like ``open_file()``."""
    with open_file(path, most) as file:
        try:
            # Read at most ``most`` bytes, because a file can grow after the check, as some in /proc
            # do.
            return file.read(most)
        except OSError as error:
            raise ContractError(f"{_cannot(path)}: {error.strerror or error}") from None


def _cannot(path: str | PathLike[str]) -> str:
    folder = ""
    with contextlib.suppress(OSError):  # another process removed the current folder
        folder = f" (in {os.getcwd()!r:.200})"
    return f"cannot read {os.fspath(path)!r:.200}{folder}"


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
