"""The client of a control API, for the commands that control a running server."""

from __future__ import annotations

import json
import os
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from ..core.errors import ContractError, unknown_name
from ..services import named
from .addresses import TOKEN_VARIABLE
from .control import PREFIX

CONNECTS_WITHIN = 10.0
"""Time limit in real seconds for a connection."""
ANSWERS_WITHIN = 60.0
"""Time limit in real seconds for a response; then the server is assumed to hang."""
LASTS_AT_MOST = 600.0
"""The same for loading data, replaying a recording and calling a method of a fake."""


class ControlClient:
    """A connection to a control API. A context manager that closes it.

    ``token`` is the server's control token; by default the variable ``PYTEST_FAKECLOUD_TOKEN``.
    Every method raises ``ContractError`` if the server does not respond, rejects the request, or is
    another kind of server.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        import urllib3

        self.url = _checked_url(url)
        given = _checked_token(url, token)
        self._headers = {"Authorization": f"Bearer {given}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(retries=False, maxsize=1)

    def ask(self, method: str, path: str, body: Any = None, within: float = ANSWERS_WITHIN) -> Any:
        """Send a request and return the JSON of its response."""
        import urllib3

        try:
            answer = self._pool.request(
                method,
                f"{self.url}{PREFIX}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
                timeout=urllib3.Timeout(connect=CONNECTS_WITHIN, read=within),
            )
        except urllib3.exceptions.ReadTimeoutError as error:
            raise ContractError(
                f"{self.url} did not answer {method} {path} within {within:g} s: "
                "it hangs, or is another kind of server"
            ) from error
        except urllib3.exceptions.SSLError as error:
            raise ContractError(
                f"the TLS connection to {self.url} failed ({error}): set SSL_CERT_FILE to the file "
                "in the variables that the server prints, or pass its URL with http:// if it was "
                "started without --tls"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise ContractError(
                f"no stand-alone server responds at {self.url} ({_reason(error)}); "
                "start one with: pytest-fakecloud serve"
            ) from error
        try:
            content = json.loads(answer.data)
        except (ValueError, RecursionError):
            raise ContractError(
                f"{self.url} is not a control API: its response is not JSON"
            ) from None
        if answer.status >= 400:
            raise ContractError(f"{self.url} rejected {method} {path}: {_message(content)}")
        return content

    def fakes(self) -> list[dict[str, Any]]:
        """Return the fakes of the server, each with its ``name``, ``fixture`` and ``url``."""
        state = self.ask("GET", "/state")
        fakes = state.get("handles") if isinstance(state, dict) else None
        if not isinstance(fakes, list) or not all(
            isinstance(one, dict) and {"name", "fixture"} <= one.keys() for one in fakes
        ):
            raise ContractError(f"{self.url} is not a control API: it returned {state!r:.100}")
        return fakes

    def fake(self, name: str) -> str:
        """Return the name of a fake, given its name or that of its service or fixture."""
        fakes, service = self.fakes(), named(name)
        for one in fakes:
            if name == one["name"] or (service is not None and service.fixture == one["fixture"]):
                return str(one["name"])
        raise ContractError(unknown_name("fake", name, [one["name"] for one in fakes]))

    def call(self, fake: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a fake; an exception that it raises becomes a ``ContractError``."""
        body = {"object": fake, "name": method, "args": args, "kwargs": kwargs}
        found = self.ask("POST", "/call", body, LASTS_AT_MOST)
        match found:
            case {"value": value}:
                return value
            case {"raise": {"text": text}}:
                raise ContractError(str(text))
        raise ContractError(f"{self.url} is not a control API: it returned {found!r:.100}")

    def close(self) -> None:
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_path(name: str) -> str:
    return quote(name, safe="")


def _message(content: Any) -> object:
    error = content.get("error", content) if isinstance(content, dict) else content
    return error.get("message", error) if isinstance(error, dict) else error


def _reason(error: Exception) -> str:
    """Return why a connection failed, without the objects that urllib3 names in its errors."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if cause is None:  # The URL is wrong.
        return str(error)
    return "it did not connect in time" if isinstance(cause, TimeoutError) else "connection lost"


def _checked_url(url: str) -> str:
    if not isinstance(url, str):
        raise ContractError(f"url={url!r} is not a string: pass the address that the server prints")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ContractError(f"{url!r} is not a URL: {error}") from error
    if "token" in parse_qs(parts.query):
        raise ContractError(
            "a URL must not contain the control token, because URLs end up in logs; pass token=… "
            f"or set {TOKEN_VARIABLE}"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _checked_token(url: str, token: str | None) -> str:
    """Return the given control token or that of the environment; raise ``ContractError`` if invalid."""
    given = token or os.environ.get(TOKEN_VARIABLE, "")
    if not isinstance(given, str) or not (given.isascii() and given.isprintable()):
        raise ContractError(
            f"{given!r} is not a control token: pass the string of printable ASCII characters "
            "that the server prints when it starts"
        )
    if not given:
        raise ContractError(f"{url} needs its control token: pass --token, or set {TOKEN_VARIABLE}")
    return given
