"""Fixtures for vector tests: one TLS context for the clients of each module."""

from tests.harness import one_tls_context as one_tls_context
