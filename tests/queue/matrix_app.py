"""The application for ``test_surroundings``: verifies a delivery and sends the requests in its
body.

It runs as a function, as an ASGI application, behind a server in a thread, and (as a script) in a
process of its own.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from qstash import Receiver


def verify(signature: str | None, body: bytes, url: str) -> dict[str, Any]:
    """Check the signature with the official receiver; return the body."""
    asked: dict[str, Any] = json.loads(body)
    Receiver(*asked["keys"]).verify(signature=signature or "", body=body.decode(), url=url)
    return asked


def requests_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requests to the fakes that a body lists."""
    requests: list[dict[str, Any]] = asked.get("requests", [])
    return requests


def handle(signature: str | None, body: bytes, url: str) -> int:
    """Handle a delivery synchronously."""
    asked = verify(signature, body, url)
    with httpx.Client(verify=False, trust_env=False, timeout=4) as http:
        for request in requests_of(asked):
            http.request(**request).raise_for_status()
    if asked.get("upstream"):
        import requests

        assert requests.get(asked["upstream"]).status_code == 200
    return 200


async def ahandle(signature: str | None, body: bytes, url: str) -> int:
    """Handle a delivery in the running event loop."""
    asked = verify(signature, body, url)
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=4) as http:
        for request in requests_of(asked):
            (await http.request(**request)).raise_for_status()
    if asked.get("upstream"):
        import requests

        assert requests.get(asked["upstream"]).status_code == 200
    return 200


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """Serve ``ahandle()`` as an ASGI application."""
    assert scope["type"] == "http"
    event = await receive()
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    url = f"{scope['scheme']}://{headers['host']}{scope['raw_path'].decode()}"
    status = await ahandle(headers.get("upstash-signature"), event["body"], url)
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


class Handler(BaseHTTPRequestHandler):
    """Serve ``handle()`` with the standard library's server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = f"http://{self.headers['Host']}{self.path}"
        text = b"done"
        try:
            status = handle(self.headers["Upstash-Signature"], body, url)
        except Exception as error:
            status, text = 500, repr(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *parts: object) -> None:
        """Write no log."""


def make_server() -> ThreadingHTTPServer:
    """Return a server on a free port; it is not serving yet."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    with make_server() as main_server:
        sys.stdout.write(f"{main_server.server_address[1]}\n")
        sys.stdout.flush()
        main_server.serve_forever()
