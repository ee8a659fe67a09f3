"""Fixtures for tests with the official clients."""

from __future__ import annotations

from tests.harness import one_tls_context as one_tls_context
