"""Saving the state of a server: its data as the content of a state file, and a file that keeps it.

A server with ``--state FILE`` saves at its end and at intervals. A file is written beside the old one
and then takes its place, so that a crash leaves one of them whole.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cloud.files import replace_file
from ..cloud.services import find, part_of, saved_part
from ..core.errors import ContractError

if TYPE_CHECKING:
    from ..cloud.cloud import Cloud

INTERVAL_SECONDS = 30.0
"""Default number of seconds between two saves."""


def saved_state(cloud: Cloud) -> dict[str, Any]:
    """Return the state of a cloud as the content of a state file.

    It has the data of all fakes that the command line can start, except that of real servers
    (``engine=``), and the destinations and faults that JSON can describe.
    """
    state: dict[str, Any] = {"clock": _clock(cloud)}
    parts: dict[str, Any] = {}
    faults: dict[str, Any] = {}
    for fake in cloud.fakes():
        service = find(fake.fixture)
        if service.word is None:
            continue
        part = part_of(service, fake.name)
        data = saved_part(service.word).saved(fake)
        if data is not None:
            parts[part] = data
        written = [fault._written() for fault in fake.faults if fault.active]
        if saved_faults := [fault for fault in written if fault is not None]:
            faults[part] = saved_faults
        if service.delivers and (routes := _destinations(fake)):
            state[f"destinations{part.removeprefix(service.word)}"] = routes
    return {**state, "saved": parts, **({"faults": faults} if faults else {})}


def _destinations(fake: Any) -> dict[str, Any]:
    written = {
        route.prefix: route._written()
        for route in fake.destinations.routes()
        if isinstance(route.prefix, str)
    }
    return {prefix: route for prefix, route in written.items() if route is not None}


def _clock(cloud: Cloud) -> dict[str, str]:
    clock = cloud.clock
    return {
        "at": clock.now().isoformat(),
        "saved_at": datetime.now(UTC).isoformat(),
        "mode": clock.mode,
    }


def restored_now(clock: Mapping[str, str]) -> datetime:
    """Return the time with which a clock starts that continues the clock of a state file."""
    try:
        at, saved_at = (datetime.fromisoformat(clock[name]) for name in ("at", "saved_at"))
        passed = datetime.now(UTC) - saved_at
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"clock: {error}; pass times such as 2026-02-01T09:00:00+00:00"
        ) from None
    return at if clock["mode"] == "frozen" else at + max(passed, timedelta())


def encoded_state(state: Mapping[str, Any]) -> bytes:
    """Return the bytes of a state file, with lines that people and version control can compare."""
    return json.dumps(state, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other servers from using a state file. The system frees it if this process is killed.

    Creates its folder. Raises ``ContractError`` if another server uses it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_name(f"{file.name}.lock"), "a+b") as opened:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(opened.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ContractError(
                f"another server keeps its state in {file}: stop it, or use another file"
            ) from None
        yield


class StateKeeper:
    """Saves the state of a cloud in a file at intervals and at the end, if it has changed."""

    def __init__(self, cloud: Cloud, file: Path, interval_s: float, log: Any) -> None:
        self.file = file
        self.saved_at: datetime | None = None
        """The real time of the last save."""
        self.failure = ""
        """Why the last save failed; empty if it did not."""
        self._cloud = cloud
        self._interval_s = interval_s
        self._log = log
        self._saving = threading.Lock()
        self._stopped = threading.Event()
        self._saved: dict[str, Any] | None = None
        """The state that the file has, of which a running clock is no part."""
        self._thread = threading.Thread(
            target=self._save_at_intervals, name="fakecloud-state", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def save(self) -> None:
        """Save the state, unless it has not changed since the last save."""
        with self._saving:
            state = saved_state(self._cloud)
            # A running clock changes all the time, and continues without a save.
            moves = state["clock"]["at"] if self._cloud.clock.mode == "frozen" else "running"
            compared = {**state, "clock": moves}
            if compared != self._saved:
                replace_file(self.file, encoded_state(state))
                self._saved, self.saved_at = compared, datetime.now(UTC)

    def _save_at_intervals(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
            self.failure = ""
        except Exception as error:
            self.failure = str(error)
            self._log.say(
                "state", f"the state cannot be saved in {self.file}: {error}", level="error"
            )

    def close(self) -> None:
        """Stop, and save the state a last time."""
        self._stopped.set()
        self._thread.join()
        self._try_to_save()
