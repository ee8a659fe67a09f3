"""The base class of all fakes, and what the fakes of one cloud share."""

from __future__ import annotations

from .action import action as action
from .closed_fakes import ClosedFakes as ClosedFakes
from .closed_fakes import closed_fakes_of as closed_fakes_of
from .closed_fakes import secrets_of as secrets_of
from .closed_fakes import was_given as was_given
from .context import Context as Context
from .context import Delivery as Delivery
from .found_handles import HANDLE_FIELDS as HANDLE_FIELDS
from .found_handles import found_handles as found_handles
from .handle import Handle as Handle
from .handle import Snapshot as Snapshot
