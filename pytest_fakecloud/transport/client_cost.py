"""Makes HTTP clients cheaper to construct while fakes are mounted.

httpx, which every official client uses, builds a TLS context and loads the certificate authorities
for each client. This takes about 20 ms, many times the rest of a test. While a fake is mounted,
clients with default settings share one context. Other ``verify`` settings and client certificates
are not affected, and a context is never shared across a change of ``SSL_CERT_FILE`` or
``SSL_CERT_DIR`` or of the files they name. The context is kept for the next fake; httpx itself is
restored when the last fake closes.

The second largest cost is the search for proxies, which parses the whole environment. It is skipped
if no environment variable names a proxy. The ini setting ``fakecloud_share_tls_context = false``
turns both optimizations off.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from .hooks import Hook

_lock = threading.Lock()
_contexts: dict[tuple[object, ...], Any] = {}


def _trusted(variable: str) -> tuple[object, ...]:
    """Return the path in an environment variable, with the version of the file at that path."""
    name = os.environ.get(variable)
    if not name:
        return ()
    try:
        state = os.stat(name)
    except OSError:
        return (name,)
    return name, state.st_mtime_ns, state.st_size


def _wrap(original: Callable[..., Any], active: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_ssl_context(*args: Any, **kwargs: Any) -> Any:
        verify, cert, trust_env = (*args, *(_MISSING,) * 3)[:3]
        verify = kwargs.get("verify", True) if verify is _MISSING else verify
        cert = kwargs.get("cert") if cert is _MISSING else cert
        trust_env = kwargs.get("trust_env", True) if trust_env is _MISSING else trust_env
        unknown = len(args) > 3 or kwargs.keys() - {"verify", "cert", "trust_env"}
        if unknown or verify is not True or cert is not None or not active():
            return original(*args, **kwargs)
        key = (_trusted("SSL_CERT_FILE"), _trusted("SSL_CERT_DIR"), bool(trust_env))
        with _lock:
            context = _contexts.get(key)
            if context is None:
                context = _contexts[key] = original(*args, **kwargs)
            return context

    return create_ssl_context


def _names_no_proxy() -> bool:
    """Return whether no environment variable names a proxy."""
    names = b" ".join(os.environb).lower()
    return not any(word in names for word in (b"http_proxy", b"https_proxy", b"all_proxy"))


def _wrap_proxies(original: Callable[[], Any], active: Callable[[], bool]) -> Callable[[], Any]:
    @functools.wraps(original)
    def get_environment_proxies() -> Any:
        return {} if active() and _names_no_proxy() else original()

    return get_environment_proxies


_MISSING: Any = object()
_hooks = [
    Hook(
        "httpx._transports.default",
        "create_ssl_context",
        _wrap,
        without="every client creates a TLS context, which is slower",
    )
]
# On Windows and macOS, do not skip the search, because proxies can also be set in the system.
if sys.platform not in ("win32", "darwin"):
    _hooks.append(
        Hook(
            "httpx._client",
            "get_environment_proxies",
            _wrap_proxies,
            without="looking for proxies in the environment is slower",
        )
    )


def enter() -> None:
    """Start using the optimizations."""
    with _lock:
        for hook in _hooks:
            hook.enter()


def refresh() -> None:
    """Patch httpx if it was imported after ``enter()`` or restored by another tool."""
    for hook in _hooks:
        hook.refresh()


def leave() -> None:
    """Stop using the optimizations. The last caller restores httpx."""
    with _lock:
        for hook in _hooks:
            hook.leave()
