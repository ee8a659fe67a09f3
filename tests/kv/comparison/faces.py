"""The interfaces of the engine that are compared: in process, REST, and the database port."""

from __future__ import annotations

import copy
import io
import json
import re
import socket
from http.client import HTTPConnection
from typing import Any, Protocol
from urllib.parse import urlsplit

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_resp
from pytest_fakecloud.kv.settings import KVConfig

from . import wire


class Face(Protocol):
    """An interface; `as_json` says that its replies have lost what JSON cannot represent."""

    name: str
    as_json: bool
    resp: int

    def call(self, argv: list[bytes]) -> Any:
        """Run a command line; return its reply as `wire` or JSON values."""

    def close(self) -> None:
        """Release its resources."""


class InProcess:
    """The engine itself; its replies are encoded in the Redis protocol and decoded."""

    as_json = False

    def __init__(self, seed: int = 1, resp: int = 2, **settings: Any) -> None:
        self.resp = resp
        self.engine = KVEngine(Timekeeper(), Ids(seed), KVConfig(dialect="redis", **settings))
        self.name = f"in process as {self.engine.version}, RESP{resp}"
        self.session = self.engine.session()
        self.session.resp = resp

    def again(self) -> InProcess:
        """Return another client of the same engine, in RESP2."""
        client = copy.copy(self)
        client.session = self.engine.session()
        return client

    def call(self, argv: list[bytes]) -> Any:
        try:
            reply = self.engine.execute(self.session, argv)
        except CommandError as error:
            return wire.Error(error.text)
        return wire.read(io.BytesIO(to_resp(reply, self.resp)))

    def close(self) -> None:
        """Do nothing."""


def as_json(reply: Any) -> Any:
    """Convert a RESP2 reply as the REST interface does, implemented independently of the engine.

    Strings stay UTF-8 bytes, so that the same rules apply to every interface.
    """
    if isinstance(reply, wire.Status):
        reply = reply.text
    if isinstance(reply, wire.NilArray):
        return None
    if isinstance(reply, bytes):
        # Each byte that is not UTF-8 becomes one U+FFFD; "replace" would combine several.
        return re.sub(
            "[\udc80-\udcff]", "\ufffd", reply.decode("utf-8", "surrogateescape")
        ).encode()
    if isinstance(reply, list):
        return [as_json(item) for item in reply]
    return reply


def _from_json(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value


class Rest:
    """POST requests with one JSON array each, on one connection."""

    name = "REST"
    as_json = True
    resp = 2

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port)
        self._headers = {"Authorization": f"Bearer {token}"}

    def call(self, argv: list[bytes]) -> Any:
        # JSON cannot contain bytes that are not UTF-8; the caller omits such lines.
        body = json.dumps([word.decode() for word in argv])
        self._connection.request("POST", "/", body, self._headers)
        answer = json.loads(self._connection.getresponse().read())
        if "error" in answer:
            return wire.Error(answer["error"].encode())
        return _from_json(answer["result"])

    def close(self) -> None:
        self._connection.close()


class Port(wire.Connection):
    """The Redis protocol on the database port."""

    as_json = False

    def __init__(self, url: str, resp: int = 2) -> None:
        self.name = f"database port, RESP{resp}"
        self.resp = resp
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        super().__init__(socket.create_connection((parts.hostname, parts.port)))
        if parts.password:
            reply = self.call([b"AUTH", parts.password.encode()])
            assert reply == wire.Status(b"OK"), reply
        if resp == 3:
            self.call([b"HELLO", b"3"])
