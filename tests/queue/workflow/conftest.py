"""Fixtures for workflow tests: one TLS context per module."""

from tests.harness import one_tls_context as one_tls_context
