"""The part of a real server that belongs to one fake: keys with a prefix, a database, or everything."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from ...core.errors import ContractError
from ..errors import CommandError
from ..settings import Isolation
from .addresses import open_link
from .claims import Claim, claim_database
from .connection import Link, Login, Unreachable
from .prefixes import Prefixes

CLOSE_PATIENCE = 0.5
"""Seconds for which a closing fake waits for the server's response before removing its data."""
_MARK = b"fakecloud-"
"""Prefix of the names that fakes create for themselves on a server."""
_PAGE = b"1000"
BATCH = 500
"""Maximum number of keys whose commands are sent together."""


class Share:
    """The part of the server at ``url`` that belongs to one fake, and the connections to it.

    ``script_login`` is the login of the user that runs scripts; None if the server does not allow
    creating users, or if scripts may use the whole server. Raises ``ContractError`` for an invalid
    URL and an unreachable server.
    """

    def __init__(self, url: str, isolation: Isolation) -> None:
        url, prefix = _split_prefix(url)
        self.link: Link = open_link(url)
        if self.link.clustered and isolation != "prefix":
            raise ContractError(
                f"isolation={isolation!r} is not possible in a cluster, which has a single database: "
                'pass isolation="prefix" (the default)'
            )
        self._keeps_data = prefix is not None or isolation == "none"
        self._claim: Claim | None = None
        try:
            with _explained(self.link):
                if isolation == "database":
                    self._claim = claim_database(self.link, url)
                self.prefixes = self._new_prefixes(isolation, prefix)
                self.link.pin(self.prefixes.keys)
                self.link.call([b"PING"])
                self.script_login = self._create_script_user()
        except BaseException:
            self._disconnect(release=True)
            raise

    def _new_prefixes(self, isolation: Isolation, prefix: str | None) -> Prefixes:
        if isolation == "none":
            return Prefixes(b"", b"", b"", shared=False)
        mark = _MARK + secrets.token_hex(6).encode()
        keys = b""
        if isolation == "database":
            mark = _MARK + b"db%d" % self.link.database
        else:
            keys = prefix.encode() if prefix is not None else mark + b":"
            if self.link.clustered and b"{" not in keys:
                keys = b"{" + keys.rstrip(b":") + b"}:"
        if prefix is not None:
            mark = keys.strip(b"{}:")
        return Prefixes(keys, mark + b":", mark + b"-", shared=True)

    def _create_script_user(self) -> Login | None:
        if not self.prefixes.shared:
            return None
        login = (self.prefixes.users[:-1] + b"+scripts", secrets.token_hex(16).encode())
        rules = [b"reset", b"on", b">" + login[1], b"~" + self.prefixes.keys + b"*",
                 b"&" + self.prefixes.channels + b"*", b"+@all", b"-@dangerous", b"-select",
                 b"+keys", b"+sort", b"+sort_ro", b"+info"]  # fmt: skip
        try:
            self.link.keep_user(login, rules)
        except CommandError:
            # Without permission to create users, scripts cannot be confined to the fake's own keys.
            return None
        return login

    def check_claim(self) -> None:
        """Raise ``ContractError`` if another process has claimed the fake's database."""
        if self._claim is not None:
            self._claim.check()

    # -- keys and users ----------------------------------------------------------------------------

    def full_names(self) -> list[bytes]:
        """Return the sorted names of the fake's keys on the server, with their prefix."""
        found: set[bytes] = set()
        cursor: Any = b"0"
        while True:
            line = [b"SCAN", cursor, b"MATCH", self.prefixes.everything, b"COUNT", _PAGE]
            cursor, page = cast("list[Any]", self.link.call(line))
            found.update(page)
            if cursor == b"0":
                return sorted(found)

    def clear(self) -> None:
        """Remove all keys of the fake."""
        self.check_claim()
        keys = self.full_names()
        for at in range(0, len(keys), BATCH):
            self.link.call([b"UNLINK", *keys[at : at + BATCH]])

    def user_rules(self) -> dict[bytes, list[bytes]]:
        """Return the rules of each user that clients of the fake have created."""
        try:
            lines = cast("list[bytes]", self.link.call([b"ACL", b"LIST"]))
        except CommandError:
            return {}
        found = {}
        for line in lines:
            _, name, *rules = line.split(b" ")
            if self._is_own(name):
                found[name] = rules
        return found

    def _is_own(self, user: bytes) -> bool:
        if self.prefixes.shared:
            return user.startswith(self.prefixes.users)
        return user not in (b"default", self.link.user) and not user.startswith(_MARK)

    # -- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the fake's data from the server, and close all connections."""
        # First check that the server responds. If it has stopped, there is nothing to remove, and
        # if it hangs, every command would wait for its timeout.
        responds = self.link.answers(within=CLOSE_PATIENCE)
        if responds:
            with suppress(Exception):
                self._remove_own()
        self._disconnect(release=responds)

    def _remove_own(self) -> None:
        self.check_claim()
        users = [] if self.script_login is None else [self.script_login[0]]
        if not self._keeps_data:
            self.clear()
            users += self.user_rules()
        if users:
            self.link.call([b"ACL", b"DELUSER", *users])

    def _disconnect(self, *, release: bool) -> None:
        if self._claim is not None:
            if release:
                with suppress(Exception):
                    self._claim.release()
            self._claim.close()
        self.link.close()


@contextmanager
def _explained(link: Link) -> Iterator[None]:
    """Turn errors of the server into ``ContractError``."""
    try:
        yield
    except CommandError as error:
        raise ContractError(f"the server at {link.where} rejected a command: {error}") from None
    except Unreachable as error:
        raise ContractError(f"cannot use the server at {link.where}: {error}") from error


def _split_prefix(url: str) -> tuple[str, str | None]:
    """Return a URL without ``prefix=``, and the prefix."""
    base, _, text = url.partition("?")
    query = dict(parse_qsl(text))
    prefix = query.pop("prefix", None)
    return (f"{base}?{urlencode(query)}" if query else base), prefix
