"""Sends a request and reads its response, within the limits of the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from .bounds import ANSWER_BYTES, SECONDS, Bounds, Unreachable

_CHUNK = 1 << 16
_POLL = 0.05


@dataclass(frozen=True)
class Answer:
    """The response to a request: status, content type and body."""

    status: int
    kind: str
    body: bytes


def exchange(
    http: requests.Session,
    bounds: Bounds,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> Answer:
    """Send a request and read its response within the limits of the run.

    Raises ``Unreachable`` if no response arrives in time or the response is too long, and
    ``Interrupted`` if a signal interrupted the run.
    """
    bounds.check()
    began = time.monotonic()
    found: list[Answer | Exception] = []
    done = threading.Event()

    def ask() -> None:
        try:
            found.append(_ask(http, began, method, url, body, headers))
        except (Unreachable, requests.RequestException, ValueError) as error:
            found.append(error)
        finally:
            done.set()

    # Send the request in another thread and wait for that thread with a time limit. A socket
    # timeout limits each read, but not name resolution, nor the total time of a response that
    # arrives byte by byte.
    threading.Thread(target=ask, name="fakecloud verify", daemon=True).start()
    while not done.wait(_POLL):
        if time.monotonic() > min(began + SECONDS, bounds.until()):
            bounds.check(" while a request was under way, which may still have an effect")
            raise _late()
    answer = found[0] if found else Unreachable("the request could not be sent")
    if isinstance(answer, Answer):
        bounds.count(len(answer.body))
        return answer
    raise answer if isinstance(answer, Unreachable) else Unreachable(str(answer))


def _ask(
    http: requests.Session,
    began: float,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> Answer:
    with http.request(
        method,
        url,
        data=body,
        headers=headers,
        timeout=2 * SECONDS,  # only to end this thread; the run stops waiting for it earlier
        allow_redirects=False,
        stream=True,
    ) as answer:
        content = bytearray()
        for piece in answer.iter_content(_CHUNK):
            content += piece
            if len(content) > ANSWER_BYTES:
                raise Unreachable(f"a response is larger than {ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > began + SECONDS:
                raise _late()
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return Answer(answer.status_code, kind, bytes(content))


def _late() -> Unreachable:
    return Unreachable(f"no complete response within {SECONDS:g} s")
