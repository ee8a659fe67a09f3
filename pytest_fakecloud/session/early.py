"""The fakes of ``fakecloud_early``, which start before conftests are imported.

This module is a plugin of runs with early fakes.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ..core.errors import ContractError
from ..core.wording import unknown_name
from ..services import services_by_word
from .checks import check_settings
from .options import fixture_of
from .run import end, run_of

if TYPE_CHECKING:
    from ..cloud import Cloud


def begin_early(config: pytest.Config, names: list[str]) -> None:
    """Start fakes and set their variables before conftests are imported."""
    known = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(name) for name in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', unknown[0], known)}")
    # Close the fakes here: nothing else would if a conftest cannot be imported.
    config.add_cleanup(partial(end, config))
    check_settings(config)

    config.pluginmanager.register(sys.modules[__name__])
    try:
        run_of(config).start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
    """Apply the settings of the session before the first test, whether or not it requests a fake."""
