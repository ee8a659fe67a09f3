"""The replay of a vector index."""

from __future__ import annotations

from ...core.calls import Action
from ...reporting import replay
from ..fake import hold, release


class ReplayedVectorIndex(replay.ReplayedFake):
    """A replayed vector index, whose blocks of ``holding()`` begin and end."""

    def replay_action(self, action: Action) -> None:
        blocks = {"hold": hold, "release": release}
        if action.kind in blocks:
            self.time.expect(number=action.number)
            blocks[action.kind](self.fake)
        else:
            super().replay_action(action)


REPLAYED = ReplayedVectorIndex
