"""Claims on the numbered databases of a real server, for ``isolation="database"``."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ..errors import CommandError
from ..reply import Reply
from .addresses import open_link
from .connection import Link

_CLAIM_MS = 600_000
"""Milliseconds after which a claim ends unless it is extended."""
_EXTEND_SECONDS = 60.0
"""Minimum number of seconds between two extensions of a claim."""
_EXTEND = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])"""
_RELEASE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])"""


class Claim:
    """A fake's claim on a numbered database. It keeps other fakes from using the database.

    ``registry`` is a connection to database 0, in which the claims are stored.
    """

    def __init__(self, registry: Link, number: int) -> None:
        self.number = number
        self._registry = registry
        self._key = b"pytest-fakecloud:database:%d" % number
        self._mark = secrets.token_hex(8).encode()
        self._lock = threading.Lock()
        self._extended = monotonic()
        self._lost = False

    def take(self) -> bool:
        """Claim the database; return False if another fake has claimed it."""
        line = [b"SET", self._key, self._mark, b"NX", b"PX", b"%d" % _CLAIM_MS]
        return self._registry.call(line) is not None

    def check(self) -> None:
        """Extend the claim from time to time; raise ``ContractError`` if another fake has taken it.

        A claim that has ended is taken again if the database is still free.
        """
        with self._lock:
            if not self._lost and monotonic() - self._extended >= _EXTEND_SECONDS:
                self._lost = not (self._run(_EXTEND, b"%d" % _CLAIM_MS) or self.take())
                self._extended = monotonic()
            if self._lost:
                raise ContractError(
                    f"another process has claimed database {self.number}, because this fake sent no "
                    f"command for {_CLAIM_MS // 60_000} minutes: create a new fake"
                )

    def release(self) -> None:
        """Delete the claim, so that other fakes can use the database."""
        self._run(_RELEASE)

    def close(self) -> None:
        self._registry.close()

    def _run(self, script: bytes, *arguments: bytes) -> Reply:
        return self._registry.call([b"EVAL", script, b"1", self._key, self._mark, *arguments])


def claim_database(link: Link, url: str) -> Claim:
    """Claim the URL's database, or the first free one but 0; empty it and connect ``link`` to it.

    Raises ``ContractError`` if no database is free.
    """
    registry = open_link(url)
    try:
        wanted = link.database
        registry.select(0)
        numbers = [wanted] if wanted else range(1, _databases(registry))
        for number in numbers:
            claim = Claim(registry, number)
            if claim.take():
                link.select(number)
                link.call([b"FLUSHDB"])
                return claim
        taken = f"database {wanted}" if wanted else f"every database but 0 (of {len(numbers) + 1})"
        raise ContractError(
            f"{taken} of {link.where} is in use by another process: pass isolation='prefix', or the "
            "URL of a server with more databases"
        )
    except BaseException:
        registry.close()
        raise


def _databases(link: Link) -> int:
    with suppress(CommandError):
        found = link.call([b"CONFIG", b"GET", b"databases"])
        if isinstance(found, list) and len(found) == 2:
            return int(found[1])
    return 16
