"""The tuned numbers of the search, and what was measured for them.

They divide the budget among the sources of plans, and limit how much is tried of one failure.
"""

from __future__ import annotations

# -- how sources share the budget --------------------------------------------------------------------

HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
ORDERS_ALONE_SHARE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""
FIRST_PHASE_SHARE = 0.8
"""Maximum share of the budget for the first phase."""
FIRST_SINGLES_WEIGHT = 1.5
"""Weight of the likely single disturbances, relative to all other sources of the first phase."""
EXTENDING_WEIGHTS = (1.5, 4.0)
"""Weights of the schedules that extend others in the two phases, relative to one search for
interleavings.
"""
EXTENDING_HEAD_STARTS = (25, 5)
"""Number of rounds of the other sources before them, so that a small budget has single disturbances."""
EXTENDED_AHEAD = 4
"""Number of schedules that extend others, which are chosen together."""
SPARE_FOR_SINGLES = 1.25
"""Factor for the turns of the remaining single disturbances, so that others can follow in the budget."""
LEAST_SINGLES_SHARE, MOST_SINGLES_SHARE = 0.3, 0.8
"""Limits of the share of single disturbances in the second phase."""
LEAST_TRIALS_OF_INPUT = 10
"""Minimum number of trials with each of several inputs."""

# -- which schedules extend others -------------------------------------------------------------------

MOST_DISTURBANCES = 6
"""Maximum number of disturbances in a schedule of a search, besides orders of calls."""
CALLS_AFTER_SLOW_ANSWER = 2
"""Number of calls after a slow answer at which the same strand is delayed again."""
REPEATED_WEIGHT, LIKELY_WEIGHT = 4, 8
"""Weights of disturbances that repeat the last one, and of likely ones, relative to others."""

# -- how much is tried of a failure ------------------------------------------------------------------

MOST_PARTS = 1_000
"""Maximum number of parts of a schedule that are tried together: all of them up to ten disturbances."""
MOST_REPLACEMENTS = 200
"""Maximum number of schedules that are tried with other disturbances than the failing one."""
NEAR_POINTS = 4
"""Number of points of one strand, and of all others, at which a plainer disturbance is tried
instead.
"""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""
