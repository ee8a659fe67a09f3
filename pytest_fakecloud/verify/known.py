"""Known differences between real services and the fakes, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .scenario import Step
from .sides import Reply

OLDER = "the server does not have the option IFEQ yet"


@dataclass(frozen=True)
class Known:
    """A known difference and its reason."""

    reason: str
    applies: Callable[[Step, Reply, Reply], bool]


_ELSEWHERE = re.compile(r"[0-9a-f]{40}, | Please use EVAL\.")


def _same_but_for_the_script(step: Step, real: Reply, fake: Reply) -> bool:
    left, right = (_ELSEWHERE.sub("", str(reply)) for reply in (real, fake))
    return step.subject.startswith("EVAL") and left == right


def _newer_word(step: Step, real: Reply, fake: Reply) -> bool:
    """Return whether a server of another version rejected an option that it does not support."""
    return "IFEQ" in str(step).upper().split() and "syntax error" in str(real)


KNOWN: tuple[Known, ...] = (
    Known(
        "newer servers omit the script's hash and the advice to use EVAL from error texts",
        _same_but_for_the_script,
    ),
    Known(OLDER, _newer_word),
)


def reason_for(step: Step, real: Reply, fake: Reply) -> str | None:
    """Return the reason for a known difference, or None for any other difference."""
    return next((one.reason for one in KNOWN if one.applies(step, real, fake)), None)
