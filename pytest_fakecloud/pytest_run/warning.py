"""The warnings of a run. Imports only pytest, because a filter of warnings loads it in every run."""

from __future__ import annotations

import pytest


class FakecloudWarning(pytest.PytestWarning):
    """A warning about something that looks wrong but that the real service would accept.

    Warning filters apply to it as to every warning of a test (``-W``, ``filterwarnings``), so
    ``error::pytest_fakecloud.FakecloudWarning`` fails the test. Its location is the test.
    """

    # Warning filters and reports name the public class.
    __module__ = "pytest_fakecloud"


def warn(item: pytest.Item, text: str) -> None:
    """Issue a warning at a test; raise it if the warning filters turn it into an error."""
    # Imported here, because a run without fakes needs none of it.
    from ..core.errors import encodable

    item.warn(FakecloudWarning(encodable(text)))
