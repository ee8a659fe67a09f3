"""Checks the commands of clients against the limits of their number and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError

if TYPE_CHECKING:
    from ...http.messages import Request
    from ..engine.quota import Quota
    from ..settings import Limits


class CommandLimits:
    """The quota of a database, and the maximum size of a command."""

    def __init__(self, limits: Limits, quota: Quota) -> None:
        self._quota = quota
        self._max_size = limits.max_request_size

    def must_check(self, request: Request) -> bool:
        """Return whether the commands of a request must be checked.

        Without a quota, only a request that exceeds the maximum size of a command can contain a
        command that exceeds it.
        """
        if self._quota:
            return True
        return self._max_size is not None and (
            len(request.body) + len(request.target) > self._max_size
        )

    def check(self, line: list[bytes]) -> None:
        """Charge a command to the quota; raise ``CommandError`` if it exceeds a limit."""
        self.charge()
        self.check_size(line)

    def charge(self) -> None:
        """Charge one command to the quota; raise ``CommandError`` if that is used up."""
        error = self._quota.charge()
        if error is not None:
            raise CommandError(error)

    def check_size(self, line: list[bytes]) -> None:
        """Raise ``CommandError`` if a command is too large."""
        if self._max_size is not None and sum(map(len, line)) > self._max_size:
            raise CommandError(errors.MAX_REQUEST_SIZE)
