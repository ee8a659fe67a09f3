"""Parse the headers and the destination of publish requests.

Names are case-insensitive and start with either ``Upstash-`` or ``Service-``. Lower-case query keys
(``?upstash-retries=3``) count as headers if the header is missing. Nested settings
(``Upstash-Callback-*``) are parsed in the same way after their prefix is replaced.

Decided here: an unknown ``Upstash-*`` header is ignored. The first value of a repeated setting
counts. A flow-control key may have no value, because it may be pinned. ``Upstash-Header-Forward``
never forwards the queue's own ``Authorization``. ``traceparent`` is a header like any other: a
delivery has it if the publish forwards it, unchanged, and a queue starts no trace. If two settings
exclude each other (delay and not-before, the two kinds of deduplication), a setting that was sent
drops the default of the other.

The service knows some **destinations** by name. Source of their URLs: the official JavaScript client,
which publishes to ``api/llm``. In a test, they need a handler like any other destination.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from ...core.calls import HeaderPairs
from ..errors import INVALID_SCHEME, bad_request
from ..model import HeaderList, PublishSettings
from . import values
from .values import CONTROL, HOP_BY_HOP, as_text, check_header, overridden, read_redaction
from .waits import RetryDelay


@lru_cache(maxsize=1024)  # A test publishes to few URLs, but often.
def check_url(url: str, what: str) -> str:
    """Return an absolute http(s) URL unchanged; raise the service's 400 error for any other value."""
    if not url.lower().startswith(("http://", "https://")):
        raise bad_request(f"invalid {what} url: {INVALID_SCHEME}")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise bad_request(f"invalid {what} url: endpoint contains a space or control character")
    try:
        # Check the decoded text as well, which may be malformed even if the bytes are not.
        for spelling in dict.fromkeys((as_text(url), url)):
            parts = urlsplit(spelling)
            _ = parts.port  # Raises ValueError for an invalid port.
        host = parts.hostname
    except ValueError as error:
        raise bad_request(f"invalid {what} url: {error}") from None
    if not host:
        raise bad_request(f"invalid {what} url: endpoint has no host")
    return url


def _stripped(check: Callable[[str, str], str], what: str) -> Callable[[str], str]:
    return lambda text: check(text.strip(), what)


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "method": ("method", values.read_method),
    "delay": ("delay_us", partial(values.read_duration, what="delay")),
    "not-before": ("not_before_us", values.read_not_before),
    "notbefore": ("not_before_us", values.read_not_before),
    "retries": ("retries", partial(values.read_integer, what="retries")),
    "retry-delay": ("retry_delay", lambda text: RetryDelay(as_text(text)).text),
    "timeout": ("timeout_us", values.read_timeout),
    "callback": ("callback", _stripped(check_url, "callback")),
    "failure-callback": ("failure_callback", _stripped(check_url, "failure callback")),
    "deduplication-id": ("deduplication_id", values.read_deduplication_id),
    "content-based-deduplication": (
        "content_based_deduplication",
        partial(values.read_flag, what="content-based-deduplication"),
    ),
    "cron": ("cron", lambda text: as_text(text.strip())),
    "schedule-id": ("schedule_id", _stripped(values.check_name, "schedule id")),
    "queue-name": ("queue_name", _stripped(values.check_name, "queue name")),
    "label": ("labels", values.read_labels),
    "redact-fields": ("redaction", read_redaction),
    # The following values are processed further by read_given().
    "flow-control-key": ("flow_key", str),
    "flow-control-value": ("flow_value", str),
    "header-forward": ("forward_all", partial(values.read_flag, what="header-forward")),
}
"""For each header, the setting that it contains and the function that parses its value."""
_NESTED = {
    "forward-": ("forward", ""),
    "callback-": ("callback_headers", "Upstash-"),
    "failure-callback-": ("failure_callback_headers", "Upstash-"),
    "workflow-": ("workflow", "Upstash-Workflow-"),
    "feature-set": ("workflow", "Upstash-Feature-Set"),
}
"""For each prefix, the setting that lists the headers with it, and the prefix they have there."""
_EXCLUDED = {
    "delay_us": "not_before_us",
    "not_before_us": "delay_us",
    "deduplication_id": "content_based_deduplication",
    "content_based_deduplication": "deduplication_id",
}
"""For each setting, the setting whose default does not apply beside it."""
_NOT_FORWARDED = HOP_BY_HOP | {"content-type"}


def _collected(
    pairs: Iterable[tuple[str, str]],
) -> tuple[dict[str, Any], dict[str, HeaderList], HeaderList]:
    """Return the parsed settings in headers, the nested headers by setting, and all others."""
    settings: dict[str, Any] = {}
    nested: dict[str, HeaderList] = {}
    others: HeaderList = []
    for name, value in pairs:
        lower = name.lower()
        if not lower.startswith(("upstash-", "service-")):
            if lower == "content-type":
                settings.setdefault("content_type", value)
            else:
                others.append((name, value))
            continue
        own = lower.partition("-")[2]
        if own in _SETTINGS:
            setting, read = _SETTINGS[own]
            if setting not in settings:
                settings[setting] = read(value)
            continue
        for prefix, (setting, new_prefix) in _NESTED.items():
            if own.startswith(prefix):
                # Keep upper case in the rest of the name, which ``own`` has lost.
                suffix = name.partition("-")[2][len(prefix) :]
                nested.setdefault(setting, []).append((new_prefix + suffix, value))
                break
    return settings, nested, others


def read_given(
    headers: Iterable[tuple[str, str]], query: HeaderPairs = (), defaults: HeaderList | None = None
) -> dict[str, Any]:
    """Return the settings in the headers and in ``upstash-*`` query keys.

    ``defaults`` are the headers of a URL group, which apply unless the request sets them. Raises
    ``QueueError`` (400) for the first malformed header.
    """
    in_query = (pair for pair in query if pair[0].lower().startswith("upstash-"))
    settings, sent, others = _collected(chain(headers, in_query))
    default: dict[str, HeaderList] = {}
    if defaults:
        usual, default, _ = _collected(defaults)
        excluded = {_EXCLUDED.get(name) for name in settings}
        settings = {name: usual[name] for name in usual if name not in excluded} | settings
    if settings.pop("forward_all", False):
        # Forward the request's headers before the nested ones, so that they replace the defaults.
        forward = sent.setdefault("forward", [])
        taken = {name.lower() for name, _ in forward} | {"authorization", "user-agent"}
        forward += [pair for pair in others if pair[0].lower() not in taken]
    flow_key, flow_value = settings.pop("flow_key", None), settings.pop("flow_value", None)
    if flow_key is not None:
        settings["flow"] = values.read_flow(flow_key, flow_value)
    elif flow_value is not None:
        raise bad_request("invalid flow control: a value was given without a key")
    for name in {**default, **sent}:
        nested = sent.get(name, [])
        if name in default:
            nested = overridden(default[name], nested)
        if name == "forward":
            nested = [pair for pair in nested if pair[0].lower() not in _NOT_FORWARDED]
            for pair in nested:
                check_header(*pair)
        if nested:
            settings[name] = nested
    if "content_type" in settings and re.search(CONTROL, settings["content_type"]):
        raise bad_request("invalid header value for Content-Type: control character")
    return settings


def settings_to_republish(
    settings: PublishSettings, overrides: dict[str, Any], max_retries: int | None = None
) -> PublishSettings:
    """Return the settings for publishing a message again, overridden by ``overrides``.

    Delay and deduplication are dropped unless ``overrides`` contain them. ``max_retries`` applies if
    neither contains a number of retries. A forwarded header replaces the headers of the same name.
    """
    plain = settings._replace(
        delay_us=0,
        not_before_us=None,
        deduplication_id=None,
        content_based_deduplication=False,
        retries=max_retries if settings.retries is None else settings.retries,
    )
    merged = {
        name: overridden(getattr(plain, name), overrides[name])
        for name in ("forward", "callback_headers", "failure_callback_headers")
        if overrides.get(name)
    }
    return plain._replace(**{**overrides, **merged})


LLM_URL = "https://qstash.upstash.io/llm/v1/chat/completions"
"""The destination of ``api/llm``, and of the queue's own endpoint ``/llm/v1/chat/completions``."""
NAMED = {"api/llm": LLM_URL, "api/email": "https://api.resend.com/emails"}
_NEVER_PUBLIC = (".test", ".invalid", ".local", ".internal")


def named_url(destination: str) -> str | None:
    """Return the URL of a destination of the service itself, with or without a final slash."""
    return NAMED.get(destination.rstrip("/"))


def check_public(url: str) -> None:
    """Raise a 400 error for a loopback address, and for a host name that cannot be public.

    Decided here: private addresses such as 10.0.0.1 are accepted.
    """
    loopback = loopback_address(url)
    if loopback is not None:
        raise bad_request(
            f"invalid destination url: endpoint resolves to a loopback address: {loopback}"
        )
    host = (urlsplit(url).hostname or "").rstrip(".")
    # Do not resolve names, but reject those that are known not to be public. (IPv6 addresses, with
    # their colons, may have no dot.)
    if ":" not in host and ("." not in host or host.endswith(_NEVER_PUBLIC)):
        raise bad_request(f"invalid destination url: unable to resolve host: {host}")


@lru_cache(maxsize=1024)  # A test delivers to few URLs, but often.
def loopback_address(url: str) -> str | None:
    """Return the loopback address in a URL, or None for any other host.

    The address of localhost is ``::1``, as in the error of the service (*observed*).
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or host.endswith(".localhost"):
            return "::1"
        return host if ipaddress.ip_address(host).is_loopback else None
    except ValueError:
        return None
