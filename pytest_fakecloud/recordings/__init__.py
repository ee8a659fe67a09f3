"""A cloud's journal as an HTTP archive (HAR 1.2), and the replay of an archive against fakes."""

from __future__ import annotations

from .har import archive as archive
from .har import write as write
from .replaying import Difference as Difference
from .replaying import ReplayOptions as ReplayOptions
from .replaying import replay as replay
