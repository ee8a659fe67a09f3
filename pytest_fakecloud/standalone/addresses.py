"""Default ports and credentials of ``pytest-fakecloud serve``, and its accepted host names.

The addresses and credentials are the same after every start, so that a ``.env`` file written once
keeps working. The credentials of services are public. They are used on loopback addresses only,
where ``Hosts.guard()`` rejects requests that web pages could make with them.

``Hosts`` are the host names under which a server accepts requests. A page of another site can make
its own name resolve to this machine (DNS rebinding). The browser then treats the page and the server
as one origin, but ``Host`` still contains the page's name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..cloud.files import read_file
from ..cloud.services import Service, part_of, services_by_word, split_part
from ..core.errors import ContractError, ServiceError
from ..core.hosts import address_of, host_of, is_loopback
from ..core.ids import new_token
from ..http.messages import Request

CONTROL_PORT = 7400
CONTROL_URL = f"http://127.0.0.1:{CONTROL_PORT}"
URL_VARIABLE = "PYTEST_FAKECLOUD_URL"
TOKEN_VARIABLE = "PYTEST_FAKECLOUD_TOKEN"
DEVELOPMENT: Mapping[str, Mapping[str, Any]] = {
    word: service.development for word, service in services_by_word().items()
}
"""Default settings of each service, by its name on the command line."""
NEXT_PORT = 7406
"""The first port of fakes whose service has another fake with its default ports."""
_CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "token": ("token", "password"),
    "database_password": ("database_password",),
    "dev_credentials": ("dev_credentials", "token"),
}
"""For each default credential, the settings that replace it."""


def development(part: str) -> dict[str, Any]:
    """Return the default settings of a fake, called ``kv`` or ``kv:NAME``. A fake with a name has
    credentials of its own, so that those of another fake of its service are rejected.
    """
    service, name = split_part(part)
    word = str(service.word)
    return {
        setting: value.replace(f"local-{word}-", f"local-{name}-")
        if name and isinstance(value, str)
        else value
        for setting, value in DEVELOPMENT.get(word, {}).items()
    }


def defaults(part: str, settings: Mapping[str, Any], *, public: bool) -> dict[str, Any]:
    """Return the default settings that ``settings`` leaves out; ``public`` ones have no credentials."""
    settings_left_out = {}
    for name, value in development(part).items():
        replaced_by = _CREDENTIALS.get(name)
        is_given = any(settings.get(setting) is not None for setting in replaced_by or (name,))
        # A fake in front of a real server has no database port.
        has_none = name.startswith("database_") and settings.get("engine") is not None
        if not is_given and not has_none and not (public and replaced_by):
            settings_left_out[name] = value
    return settings_left_out


def has_public_credentials(service: Service, settings: Mapping[str, Any]) -> bool:
    """Return whether a fake is given credentials of the development server, which all can know."""
    if service.word is None:
        return False
    name = settings.get("name")
    parts = {service.word, part_of(service, name if isinstance(name, str) and name else None)}
    return any(
        settings.get(setting) == public[setting]
        for public in map(development, parts)
        for setting in _CREDENTIALS
        if setting in public
    )


def _state_folder() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "pytest-fakecloud"


def control_token(*, make: bool = False) -> str | None:
    """Return the control token shared by this user's servers, or None if there is none.

    With ``make``, create it in the user's state folder, readable by its owner only; a file that
    others can read is replaced. Raises ``ContractError`` if the file cannot be read, and
    ``OSError`` if it cannot be created.
    """
    try:
        path = _state_folder() / "control-token"
    except RuntimeError as error:  # The user has no home folder.
        raise ContractError(f"cannot find a folder for the control token: {error}") from None
    if make:
        _create(path)
    elif not path.exists():
        return None
    token = read_file(path, most=4096).decode("ascii", "replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ContractError(
            f"{path} does not contain a token: delete the file, so that the next start writes one"
        )
    return token


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if sys.platform == "win32" or stat.S_IMODE(path.stat().st_mode) & 0o077 == 0:
            return
        path.unlink()
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(new_token())
        # A link appears with its content, and only one of two servers can create it; both read it.
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


# -- host names ------------------------------------------------------------------------------------


class Hosts:
    """The accepted host names: loopback names, the name that the server is bound to, allowed names.

    A server bound to every address (``0.0.0.0``, ``::``, ``""``) also accepts the machine's own name and
    every IP address, because DNS rebinding needs a host name.
    """

    def __init__(self, bound: str = "127.0.0.1", allowed: Iterable[str] = ()) -> None:
        self._bound = bound
        address = address_of(bound)
        self._everywhere = bound == "" or (address is not None and address.is_unspecified)
        own = [bound, socket.gethostname()] if self._everywhere else [bound]
        self._names = set(map(_normalized, [*own, *allowed]))

    def accepts(self, header: str | None) -> bool:
        """Return whether the server accepts requests with this ``Host`` header, or without one."""
        if header is None:
            return True  # Only HTTP/1.0 requests have no Host, and no browser sends them.
        name = host_of(header)
        if name is None:
            return False
        is_address = self._everywhere and address_of(name) is not None
        return name in self._names or is_loopback(name) or is_address

    def check(self, header: str | None) -> None:
        """Raise ``ServiceError`` 421 for a ``Host`` header that the server does not accept."""
        if not self.accepts(header):
            raise ServiceError(
                421,
                f"this server does not accept the host {header!r:.200}: use a loopback name or the host "
                "that the server is bound to, or start it with --allow-host NAME",
            )

    def check_fake(self, service: Service, settings: Mapping[str, Any]) -> None:
        """Check the address of a fake that a client of the control API starts.

        Raises ``ContractError`` for an address that other machines can reach, unless the server has
        it too and the fake's credentials are not public: only who starts the server may open it to a
        network. Decided here.
        """
        host = settings.get("host", "127.0.0.1")
        if not isinstance(host, str) or is_loopback(host):
            return  # The fake checks the type.
        if host != self._bound:
            raise ContractError(
                f"a fake at {host} would be reachable from other machines: start the server with "
                f"--host {host}, or leave host out"
            )
        if has_public_credentials(service, settings):
            raise ContractError(
                f"a fake at {host} would be reachable from other machines with public credentials: pass "
                "a token of its own, or none"
            )

    def guard(self, request: Request) -> None:
        """Reject a request to a fake that a web page of another site can make.

        A fake with a public token needs this check: a token may be in a query or in a URL, so a
        link, an image or a redirect is enough to send a request with it. Browsers mark requests
        from other sites with ``Sec-Fetch-Site`` or ``Origin``; a page that reaches the fake through
        its own host name is recognised by ``Host``. A page that is opened or redirected to is never
        a client, even without a site: ``Sec-Fetch-Site`` stays ``none`` through redirects. Raises
        ``ServiceError``: 421 for an unknown host, 403 for a page. Decided here.
        """
        host = request.fields.get("host")
        self.check(host)
        if _opens_a_page(request):
            raise ServiceError(
                403,
                "this address is for applications, not for browsers: the credentials of a development "
                "server are public, and a redirect could use them. Send the request with curl: "
                "curl -H 'Authorization: Bearer TOKEN' URL",
            )
        origin = request.fields.get("origin")
        same = origin is None or origin.partition("://")[2] == host
        if not same or request.fields.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise ServiceError(
                403,
                "this request comes from a web page of another site: the credentials of a "
                "development server are public, so call it from your application's server",
            )


def _opens_a_page(request: Request) -> bool:
    """Return whether a browser sent a request to show its response as a page or in a frame."""
    mode, shown = (request.fields.get(f"sec-fetch-{name}") for name in ("mode", "dest"))
    if mode is not None or shown is not None:
        return mode == "navigate" or shown in ("document", "embed", "frame", "iframe", "object")
    # Browsers without these headers send both of the following for a page; no HTTP client does.
    page = "text/html" in (request.fields.get("accept") or "")
    return page and "upgrade-insecure-requests" in request.fields


def _normalized(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
