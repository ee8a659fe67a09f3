"""A cloud's journal as an HTTP archive (HAR 1.2)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.calls import Call
from ..core.timeparse import to_datetime
from ..handle import closed_fakes_of
from ..http.readers import query_items
from ..reporting.masking import Mask
from ..reporting.private_files import write_private

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud


def archive(cloud: AnyCloud) -> dict[str, Any]:
    """Return the cloud's journal as a HAR object, with credentials masked and times of the cloud's
    clock.
    """
    mask = Mask(cloud)
    addresses = dict(closed_fakes_of(cloud).addresses)
    addresses.update((handle.name, (handle.fixture, handle.url)) for handle in cloud.handles)
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "pytest-fakecloud", "version": "1"},
            "entries": [
                _entry(
                    call, *addresses.get(call.handle, ("", f"http://{call.handle}.invalid")), mask
                )
                for call in cloud.journal.calls()
            ],
        }
    }


def write(cloud: AnyCloud, path: Path) -> Path:
    """Write the archive to a file that only its owner can read, creating folders; return the file's
    path.
    """
    return write_private(path, json.dumps(archive(cloud), indent=1, ensure_ascii=False))


def _entry(call: Call, fixture: str, origin: str, mask: Mask) -> dict[str, Any]:
    target = mask.target(call)
    content_type = call.headers.get("Content-Type", "")
    request: dict[str, Any] = {
        "method": call.method,
        "url": origin + target,
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": n, "value": mask.header(n, v)} for n, v in call.headers.pairs],
        "queryString": [
            {"name": name, "value": value} for name, value in query_items(target.partition("?")[2])
        ],
        "cookies": [],
        "headersSize": -1,
        "bodySize": len(call.body),
    }
    body = mask.body(call)
    if body:
        request["postData"] = {
            "mimeType": content_type,
            **_text(body, mask),
        }
    answer_type = call.answer_headers.get("Content-Type", "application/json")
    # Leave out the body of an answer to HEAD: the journal has the body for GET, which was never
    # sent.
    answer = call.answer if isinstance(call.answer, bytes) and call.method != "HEAD" else b""
    return {
        "startedDateTime": to_datetime(call.at_us).isoformat(),
        "time": 0,
        "request": request,
        "response": {
            "status": call.status or 0,
            "statusText": call.outcome,
            "httpVersion": "HTTP/1.1",
            "headers": [
                {"name": n, "value": mask.header(n, v)} for n, v in call.answer_headers.pairs
            ],
            "cookies": [],
            "content": {"size": len(answer), "mimeType": answer_type, **_text(answer, mask)},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": len(answer),
        },
        "cache": {},
        "timings": {"send": 0, "wait": 0, "receive": 0},
        "_handle": call.handle,
        "_fixture": fixture,
        "_fault": call.fault,
        "_outcome": call.outcome,
    }


def _text(body: bytes, mask: Mask) -> dict[str, str]:
    try:
        return {"text": mask.text(body.decode("utf-8"))}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(mask.data(body)).decode("ascii"), "encoding": "base64"}
