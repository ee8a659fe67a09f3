"""The replay of a vector index."""

from __future__ import annotations

from ..core.calls import Action
from ..vector.fake import hold, release
from . import journal


class ReplayedVectorIndex(journal.ReplayedFake):
    """A replayed vector index, whose blocks of ``holding()`` begin and end."""

    def replay_action(self, action: Action) -> None:
        blocks = {"hold": hold, "release": release}
        if action.kind in blocks:
            self.time.expect(number=action.number)
            blocks[action.kind](self.fake)
        else:
            super().replay_action(action)


REPLAYED = ReplayedVectorIndex
