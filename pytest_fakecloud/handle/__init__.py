"""The base class of all fakes, and what the fakes of one cloud share."""

from __future__ import annotations

from .action import action as action
from .action import action_as as action_as
from .action import action_method as action_method
from .action import perform as perform
from .context import ClosedFakes as ClosedFakes
from .context import Context as Context
from .context import Delivery as Delivery
from .context import secrets_of as secrets_of
from .context import was_given as was_given
from .handle import HANDLE_FIELDS as HANDLE_FIELDS
from .handle import Aio as Aio
from .handle import Handle as Handle
from .handle import Snapshot as Snapshot
from .handle import found_handles as found_handles
