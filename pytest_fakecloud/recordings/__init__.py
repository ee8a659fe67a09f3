"""A cloud's journal as an HTTP archive (HAR 1.2), and the replay of an archive against fakes."""

from __future__ import annotations

from .differences import Difference as Difference
from .differences import Differences as Differences
from .har_writer import archive as archive
from .har_writer import write as write
from .replaying import ReplayOptions as ReplayOptions
from .replaying import replay as replay
