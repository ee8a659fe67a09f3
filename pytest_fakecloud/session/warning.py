"""The warnings of this plugin."""

from __future__ import annotations

import warnings

import pytest


class FakecloudWarning(pytest.PytestWarning):
    """A warning about something that looks wrong but that the real service would accept."""


def warn(text: str) -> None:
    """Show a warning, whatever the warning filters: it must never fail a passing test or the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(FakecloudWarning(text), stacklevel=1)
