"""Changes the process while clouds are open: NO_PROXY, client libraries, requests, certificates.

The TLS context is the one exception to unmodified clients. httpx, which every official client uses,
and httpx2, its continuation, build a context and load the certificate authorities for each client. This
takes about 20 ms, many times the rest of a test. While a cloud is open, clients with default settings
share one context for each of the two libraries. Other ``verify`` settings and client certificates are
not affected, and a context is never shared across a change of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``
or of the files they name. With one of these variables, a client that is created in an event loop has
its own context, because only a look at the files, which can block the loop, shows whether they have
changed. The context is kept for the next cloud; the libraries are restored when the last cloud closes.
``fakecloud_share_tls_context = false`` turns it off.
"""

from __future__ import annotations

import functools
import os
import shutil
import ssl
import tempfile
import weakref
from collections.abc import MutableMapping
from functools import partial
from typing import Any, NamedTuple

from ..core.clock import loop_is_running
from ..core.errors import importing
from .replace import Change, Function, Hook

_LOOPBACK = "127.0.0.1"
_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_contexts: dict[tuple[object, ...], Any] = {}


class _Variable(NamedTuple):
    """A variable that is set in a mapping: its value before, and the value that was set."""

    environ: MutableMapping[str, str]
    name: str
    before: str | None
    ours: str


class Variables:
    """Environment variables that are set until ``restore()``."""

    def __init__(self) -> None:
        self._set: dict[tuple[int, str], _Variable] = {}
        """The variables by mapping and name, because other code may assign another mapping to
        ``os.environ`` at any time.
        """

    def set(self, name: str, value: str) -> None:
        environ = os.environ
        before = environ.get(name)
        last = self._set.get((id(environ), name))
        # Remember the value of other code that has set the variable since.
        if last is not None and before == last.ours:
            before = last.before
        self._set[id(environ), name] = _Variable(environ, name, before, value)
        environ[name] = value

    def has_set(self, name: str) -> bool:
        """Return whether a variable has been set here, and still has this value."""
        variable = self._set.get((id(os.environ), name))
        return variable is not None and os.environ.get(name) == variable.ours

    def restore(self) -> None:
        """Restore the variables in the mapping in which they were set, and in ``os.environ`` if this is
        now a copy that has them, too. Leave those that other code has set since or restored itself, as
        pytest's ``monkeypatch`` does. Can be repeated, also after an exception at any place in it.
        """
        for environ, name, before, ours in self._set.values():
            for changed in [environ] if environ is os.environ else [environ, os.environ]:
                if changed.get(name) == ours:
                    restore_variable(changed, name, before)
        self._set.clear()


def restore_variable(environ: MutableMapping[str, str], name: str, before: str | None) -> None:
    """Set an environment variable to its value before, or delete it if it had none."""
    if before is None:
        environ.pop(name, None)
    else:
        environ[name] = before


class _NoProxy(Change):
    """The NO_PROXY variables, set while there are users so that no proxy gets their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts = dict.fromkeys([_LOOPBACK])
        """The hosts of fakes since the first user came."""
        self._variables = Variables()

    def add(self, host: str) -> None:
        """Also pass by the proxy for a host, as long as there are users."""
        with self._lock:
            # urllib needs brackets around an IPv6 address, but httpx raises an error for them.
            self.hosts[host] = None
            self._set()

    def refresh(self) -> None:
        # Check only one of the two variables, because other tools restore both.
        if self._variables.has_set(_PROXY_VARIABLES[1]):
            return
        with self._lock:
            self._set()

    def _set(self) -> None:
        # Set the variables even without a proxy, because a test may set one later.
        for name in _PROXY_VARIABLES if self.users else ():
            parts = map(str.strip, os.environ.get(name, "").split(","))
            hosts = dict.fromkeys(filter(None, parts))
            if "*" not in hosts and not self.hosts.keys() <= hosts.keys():
                self._variables.set(name, ",".join(hosts | self.hosts))

    _begin = _set

    def _end(self) -> None:
        self._variables.restore()
        self.hosts = dict.fromkeys([_LOOPBACK])


no_proxy = _NoProxy()


# -- one TLS context -------------------------------------------------------------------------------


def _share_contexts(original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def create_ssl_context(*args: Any, **kwargs: Any) -> Any:
        try:
            verify, cert, trust_env = _arguments(*args, **kwargs)
        except TypeError:  # this version of httpx has other parameters
            return original(*args, **kwargs)
        if verify is not True or cert is not None or not hook.users:
            return original(*args, **kwargs)
        if any(map(os.environ.get, _CERTIFICATES)) and loop_is_running():
            return original(*args, **kwargs)
        key = (hook.module, *map(_trusted, _CERTIFICATES), bool(trust_env))
        # Without a lock, which would also block an event loop while another thread creates a context.
        context = _contexts.get(key)
        if context is None:
            context = _contexts.setdefault(key, original(*args, **kwargs))
        return context

    return create_ssl_context


def _arguments(verify: Any = True, cert: Any = None, trust_env: Any = True) -> tuple[Any, Any, Any]:
    """Return the arguments of ``create_ssl_context()``, whose parameters this function has."""
    return verify, cert, trust_env


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


shared_tls_contexts = tuple(
    Hook(
        f"{library}._transports.default",
        "create_ssl_context",
        _share_contexts,
        without="every client creates a TLS context, which is slower",
    )
    for library in ("httpx", "httpx2")
)
"""The functions that create the context of a client, by library.

They are replaced because a suite of small tests with the official client takes six times as long
without that."""


# -- all changes -----------------------------------------------------------------------------------


def changes_for(shares_tls_context: bool, in_process: bool) -> list[Change]:
    """Return the changes for clouds with these settings. Each open one is a user of these."""
    changes: list[Change] = [no_proxy]
    if shares_tls_context:
        changes += shared_tls_contexts
    if in_process:
        from .inprocess import origins

        changes.append(origins)
    return changes


# -- HTTPS ------------------------------------------------------------------------------------------


class Authority:
    """The certificate authority of a cloud, with the settings that make clients trust it.

    ``ca_file`` is the path of its certificate (PEM), ``variables`` are the environment variables
    for httpx, requests, curl and Node.js, ``server_context`` is the TLS context for servers on
    loopback. Raises ``ContractError`` if trustme is not installed.
    """

    def __init__(self) -> None:
        with importing("tls=True", extra="tls"):
            import trustme
        authority = trustme.CA()
        folder = tempfile.mkdtemp(prefix="fakecloud-tls-")
        self._remove = partial(_remove, folder, os.getpid())
        self._finalizer = weakref.finalize(self, self._remove)
        self.ca_file = os.path.join(folder, "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost", "::1", "0.0.0.0").configure_cert(
            self.server_context
        )

    @property
    def variables(self) -> dict[str, str]:
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
        return dict.fromkeys(names, self.ca_file)

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the authority, for clients that accept one."""
        return ssl.create_default_context(cafile=self.ca_file)

    def close(self) -> None:
        """Delete the files. A forked process does nothing, because they belong to its parent. Can be
        repeated, also after an exception at any place in it.
        """
        self._remove()
        self._finalizer.detach()


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
