"""Opens the clouds of fixtures, and starts their fakes.

The plugin's fixtures import this module when a test first uses a fake, so it imports at its top what
``run`` cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..cloud.base import fixture_fake
from ..cloud.cloud import Cloud
from ..core.errors import ContractError
from .checks import check_returned_settings, warn_of_session_settings
from .cloud_owner import CloudOwner
from .early import with_settings
from .options import SESSION_SETTINGS, SETTINGS, misuse

if TYPE_CHECKING:
    from .run import Run


def open_cloud(run: Run, settings: Any, session_settings: Any) -> Cloud:
    """Return the cloud of the fixture ``fakecloud``, given what the fixtures with settings return.
    With ``fakecloud_scope = session``, it is that of the session.
    """
    item = run.test.item
    assert item is not None, "fixtures of fakes are for tests"
    if settings != {}:
        check_returned_settings(SETTINGS, settings, run.scope)
    if run.scope == "session":
        owner = open_session_cloud(run, session_settings)
    else:
        if session_settings and not run.has_warned:
            run.has_warned = True
            warn_of_session_settings(item)
        node = run.options.node_of_scope(item)
        try:
            owner = CloudOwner(run.exits, run.options, node, settings, item.nodeid)
        except ContractError as error:
            raise misuse(str(error)) from None
        # That of a parameter before has ended, and is not forgotten yet.
        run.owners.pop("fakecloud", None)
        run.owners = {"fakecloud": owner, **run.owners}
    # pytest does not name the fixture as requested yet.
    run.test.requested_cloud = owner.cloud
    run.prepare_clouds(item)
    run.set_variables(item)
    return owner.cloud


def open_session_cloud(run: Run, settings: Any) -> CloudOwner:
    """Return the owner of the session's cloud, given what the fixture with its settings returns. The
    first use opens the cloud. That of early fakes is open, and is replaced if there are settings.
    """
    item = run.test.item
    assert item is not None, "fixtures of fakes are for tests"
    check_returned_settings(SESSION_SETTINGS, settings, run.scope)
    if (opened := run.owners.get("fakecloud_session")) is not None:
        return opened
    owner = run.owners.get("fakecloud_early")
    try:
        if owner is None:
            owner = CloudOwner(run.exits, run.options, None, settings, item.nodeid)
        elif settings:
            owner = with_settings(run, owner, settings, item.nodeid)
    except ContractError as error:
        raise misuse(str(error)) from None
    run.owners.pop("fakecloud_early", None)
    run.owners["fakecloud_session"] = owner
    # After the session's fixtures, which may use the cloud.
    item.session.addfinalizer(owner.close)
    run.prepare_clouds(item)
    return owner


def start_fake(cloud: Cloud, fixture: str) -> Any:
    """Return the fake of a fixture in a cloud, which starts on first use."""
    try:
        return fixture_fake(cloud, fixture)
    except ContractError as error:
        raise misuse(str(error)) from None
