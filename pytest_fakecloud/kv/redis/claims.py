"""Claims on the numbered databases of a real server, for ``isolation="database"``."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ..errors import CommandError
from .addresses import open_link
from .connection import Link

_CLAIM_MS = 600_000
_REFRESH = 60.0


class Claim:
    """A fake's claim on a numbered database. It keeps other fakes from using the database."""

    def __init__(self, link: Link, registry: Link, number: int) -> None:
        self.number = number
        self._link = link
        self._registry = registry
        self._key = b"pytest-fakecloud:database:%d" % number
        self._mark = secrets.token_hex(8).encode()
        self._lock = threading.Lock()
        self._refreshed = monotonic()

    def take(self) -> bool:
        """Claim the database; return False if another fake has claimed it."""
        line = [b"SET", self._key, self._mark, b"NX", b"PX", b"%d" % _CLAIM_MS]
        return self._registry.call(line) is not None

    def refresh(self) -> None:
        """Extend the claim before it expires; raise ``ContractError`` if it was lost."""
        with self._lock:
            if monotonic() - self._refreshed < _REFRESH:
                return
            self._refreshed = monotonic()
        if self._registry.call([b"GET", self._key]) != self._mark and not self.take():
            raise ContractError(
                f"another process has claimed database {self.number}, because this fake sent no "
                f"command for {_CLAIM_MS // 60_000} minutes: create a new fake"
            )
        self._registry.call([b"PEXPIRE", self._key, b"%d" % _CLAIM_MS])

    def release(self) -> None:
        """Delete the claim, so that other fakes can use the database."""
        if self._registry.call([b"GET", self._key]) == self._mark:
            self._registry.call([b"DEL", self._key])
        self._registry.close()


def claim_database(link: Link, url: str) -> Claim:
    """Claim the URL's database, or the first free one but 0, in which the claims are stored."""
    registry = open_link(url)
    wanted = link.database
    registry.select(0)
    numbers = [wanted] if wanted else range(1, _databases(registry))
    for number in numbers:
        claim = Claim(link, registry, number)
        if claim.take():
            link.select(number)
            link.call([b"FLUSHDB"])
            return claim
    taken = f"database {wanted}" if wanted else f"every database but 0 (of {len(numbers) + 1})"
    raise ContractError(
        f"{taken} of {link.where} is in use by another process: pass isolation='prefix', or the "
        "URL of a server with more databases"
    )


def _databases(link: Link) -> int:
    with suppress(CommandError):
        found = link.call([b"CONFIG", b"GET", b"databases"])
        if isinstance(found, list) and len(found) == 2:
            return int(found[1])
    return 16
