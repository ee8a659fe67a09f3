"""Delivery to mocks of the ``responses`` library."""

from __future__ import annotations

import inspect
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException, Timeout
from requests.hooks import default_hooks
from requests.models import PreparedRequest
from requests.structures import CaseInsensitiveDict
from requests.utils import requote_uri

from ..model import Delivery, Outcome
from ..settings import DEFAULT_CAP
from ..wire.values import HOP_BY_HOP, as_text
from .applications import failed


def through_responses(delivery: Delivery) -> Outcome | str | None:
    """Return an active mock's response, why no mock matches, or None if no mock is active."""
    # Read the attribute only once. If another thread removed the mock before a second read, the
    # original method would send the request to the network.
    send: Any = HTTPAdapter.send
    mock = _mock_behind(send)
    if mock is None:
        return None
    request = _prepared(delivery)
    reasons = _mismatch(mock, request)
    if reasons is not None:
        return reasons
    try:
        response = send(_ADAPTER, request, timeout=DEFAULT_CAP, stream=True)
        raw = getattr(response.raw, "headers", None)
        pairs = (response.headers if raw is None else raw).items()
        headers = [(str(name), str(value)) for name, value in pairs]
        outcome = Outcome(response.status_code, headers, response.content or b"")
    except Timeout as error:
        outcome = Outcome(exception=error, virtual_us=delivery.timeout_us)
    except (RequestException, OSError) as error:
        outcome = Outcome(exception=error)
    except Exception as error:
        outcome = failed(error)
    return outcome._replace(where="responses")


class _NoNetwork(HTTPAdapter):
    """An adapter that never sends anything over the network."""

    def get_connection_with_tls_context(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError(f"no mock matches {request.url} any more, and nothing was sent")


_ADAPTER = _NoNetwork()


def _mock_behind(send: Any) -> Any:
    library = sys.modules.get("responses")
    if library is None:
        return None
    while send is not None:
        if getattr(send, "__module__", None) == "responses":
            # Check for the mock itself: another tool's wrapper copies the name of the function it
            # wraps, but does not contain the mock.
            mock = inspect.getclosurevars(send).nonlocals.get("self")
            if isinstance(mock, library.RequestsMock) and mock._patcher is not None:
                return mock
        send = getattr(send, "__wrapped__", None)
    return None


def _mismatch(mock: Any, request: PreparedRequest) -> str | None:
    """Return why none of a mock's entries matches, or None if one matches.

    The mock itself is not called, because it would record a call that the tested code never made.
    """
    reasons = []
    for entry in mock.registered():
        matched, reason = entry.matches(request)
        if matched and getattr(entry, "passthrough", False):
            reason = "lets it pass, but the queue sends to loopback addresses only"
        elif matched:
            return None
        reasons.append(f"{entry.method} {entry.url}: {reason or 'does not match'}")
    url = str(request.url)
    reasons += [
        "a passthru prefix matches, but the queue sends to loopback addresses only"
        for prefix in mock.passthru_prefixes
        if (url.startswith(prefix) if isinstance(prefix, str) else prefix.match(url))
    ]
    listing = "; ".join(reasons) or "there are none"
    return f"The `responses` library is active, but none of its mocks matches ({listing})"


def _prepared(delivery: Delivery) -> PreparedRequest:
    request = PreparedRequest()
    url = as_text(delivery.url)
    request.method = delivery.method
    # Keep the published escapes, which requests would change. Quote raw non-ASCII text in the same
    # way as the mock quotes its own URL.
    request.url = url if url.isascii() else requote_uri(url)
    headers = [pair for pair in delivery.headers if pair[0].lower() not in HOP_BY_HOP]
    request.headers = CaseInsensitiveDict(headers)
    request.headers["Content-Length"] = str(len(delivery.body))
    request.body = delivery.body
    request.hooks = default_hooks()
    # The library's matchers read these two attributes.
    values = parse_qs(urlsplit(request.url).query, keep_blank_values=True)
    request.params = {  # type: ignore[attr-defined]
        name: many[0] if len(many) == 1 else many for name, many in values.items()
    }
    request.req_kwargs = {"stream": True}  # type: ignore[attr-defined]
    return request
