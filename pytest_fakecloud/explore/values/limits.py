"""The limits in wall-clock time: how long to wait for threads that are not explored, or do not go on.

No limit changes what an exploration finds, unless it is exceeded. They are chosen, not measured. A look
at a condition takes at least a ``nap()``. ``simulation.real_waits`` says who waits, and what happens at
a limit. Those of drawn inputs and of checks with trio are in ``guests/``.
"""

from __future__ import annotations

POLL = 0.001
"""Seconds between two looks at a condition that other threads change."""

# -- a strand that does not go on in its turn ----------------------------------------------------------

WATCH = 0.05
"""Seconds between two calls of ``Watchdog.look()``."""
BLOCKED_AFTER = 0.3
"""Seconds for which a strand may block before another strand runs."""
STUCK_AFTER = 1.5
"""Seconds for which a strand may block if no other can run, or if it runs an event loop."""
LOST_AFTER = 10.0
"""Seconds without a running strand until the trial fails, and for the end of a thread that is joined."""
REAL_WAIT = 30.0
"""Seconds for which a strand may wait for a thread of the fakes or another process."""
CHECKS_OF_WAITING = 500
"""Number of checks before a waiting strand counts as stuck."""
CHECKS_OF_BLOCKED = 1_500
"""Number of checks before a blocked strand counts as stuck, when no other can run."""
TURN_CHECK = 0.5
"""Seconds after which a thread that waits for the turn of a strand looks if the strand has ended."""

# -- threads that are not explored ---------------------------------------------------------------------

CHECKS_OF_OUTSIDERS = 100
"""Number of checks, each with a switch interval, for which a trial waits for busy earlier threads."""
CHECKS_AT_START = 5
"""Number of checks of earlier threads before the exploration."""
CHECKS_OF_SLEEPERS = 500
"""Number of checks for which the clock waits for code that it has woken."""
CHECKS_OF_STREAM = 500
"""Number of checks for which a client waits for the thread of a stream."""
ASIDE_WAIT, MOST_ASIDE_WAITS = 0.01, 1_000
"""Seconds of a wait for a thread aside, which normally takes less than 0.001, and their number."""
OTHER_SERVERS = 0.005
"""Seconds for which an event loop waits for other servers to answer."""
EARLIER_THREADS = 1.0
"""Seconds for which threads from before the exploration may end a wait of a check."""

# -- the end of a trial --------------------------------------------------------------------------------

END_OF_THREADS = 5.0
"""Seconds to wait for the threads of strands at the end of a trial or of the pool."""
END_OF_STUCK_THREAD = 0.05
"""Seconds to wait for the end of a thread that still runs explored code."""
END_OF_LOCK = 0.5
"""Seconds to wait for a lock that another strand holds."""
