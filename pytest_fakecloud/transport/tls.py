"""The certificate authority of a test run, for fakes with HTTPS (extra ``tls``, uses trustme)."""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
import weakref
from pathlib import Path

from ..core.errors import importing


class Authority:
    """A certificate authority for one test run, with the settings that make clients trust it.

    ``ca_file`` is the path of its certificate (PEM), ``variables`` are the environment variables
    for httpx, requests, curl and Node.js, ``server_context`` is the TLS context for servers on
    loopback. Raises ``ContractError`` if trustme is not installed.
    """

    def __init__(self) -> None:
        with importing("tls=True", extra="tls"):
            import trustme
        authority = trustme.CA()
        folder = tempfile.mkdtemp(prefix="fakecloud-tls-")
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())
        self.ca_file = str(Path(folder) / "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(self.server_context)

    @property
    def variables(self) -> dict[str, str]:
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
        return dict.fromkeys(names, self.ca_file)

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the authority, for clients that accept one."""
        return ssl.create_default_context(cafile=self.ca_file)

    def close(self) -> None:
        """Delete the files. A forked process does nothing, because they belong to its parent."""
        self._remove()


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
