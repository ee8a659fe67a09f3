"""What clouds change in their process is looked at here, so nothing of other tests may be left."""

from __future__ import annotations

import pytest

from pytest_fakecloud.transport import patches


@pytest.fixture(scope="module", autouse=True)
def nothing_is_changed_yet() -> None:
    """Give back what somebody in this process has asked for and never given back."""
    for changes in patches._all.values():
        while changes._users:
            changes.close()
