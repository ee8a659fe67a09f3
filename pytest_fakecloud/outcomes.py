"""Connect test outcomes with fakes: fail passing tests for violations, explain failing ones."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from .core.calls import Call
from .core.errors import ends_the_test, report_failure
from .core.problems import with_allowance
from .core.wording import counted
from .session.options import misuse
from .session.run import Run, end, run_of
from .session.warning import warn

if TYPE_CHECKING:
    from .cloud import Cloud
    from .core.problems import Problem


def check(run: Run, item: pytest.Item) -> None:
    """Fail a passing test for its strict-mode violations, and issue its warnings."""
    failed: list[str] = []
    failure: BaseException | None = None
    warned: list[str] = []
    with report_failure("the check for strict-mode violations could not be made", failed.append):
        clouds = run.clouds()
        # Check for undelivered messages first, before the journals are read as if by the test.
        warned = _undelivered(run, clouds)
        failure = _failure(run, clouds)
        if failure is None:
            warned += [text for cloud in clouds for text in _refused_clients(cloud)]
    if failed:
        failure = misuse(failed[0])
    if failure is not None:
        raise failure
    for text in warned:
        warn(item, text)


def _undelivered(run: Run, clouds: list[Cloud]) -> list[str]:
    """Describe messages that were published but never delivered, except strict-mode violations."""
    kinds = run.strict_kinds()
    found = [(cloud, text) for cloud in clouds for text in cloud._undelivered(kinds)]
    if not found:
        return []
    from .reporting.masking import Mask

    return [Mask(cloud).text(text) for cloud, text in found]


def explain(run: Run, item: pytest.Item, error: Exception) -> None:
    """Raise an earlier exception of a callback that explains the error of a failed test.

    An outcome of pytest ends the test. An assertion becomes the cause of the error.
    """
    found: list[Problem] = []
    with report_failure("the exceptions of callbacks could not be read", partial(warn, item)):
        found = _failing_violations(run, run.clouds())
    ending = _ending(found)
    if ending is not None:
        raise ending
    failed = _failed_assertion(found)
    if failed is None:
        return
    from .reporting.model import causes_of

    chain = [error, *causes_of(error)]
    if failed not in chain:
        chain[-1].__cause__ = failed


def _failing_violations(run: Run, clouds: list[Cloud]) -> list[Problem]:
    """Return the violations that fail a test.

    An outcome of pytest raised by a callback ends the test even without strict mode.
    """
    kinds = run.strict_kinds()
    return [
        problem
        for cloud in clouds
        for problem in cloud.problems()
        if problem.kind in kinds or _ending([problem]) is not None
    ]


def _ending(found: list[Problem]) -> BaseException | None:
    """Return the first outcome of pytest that a callback raised, or None."""
    ends = (ends_the_test(one.exception) for one in found if one.kind == "assertion")
    return next(filter(None, ends), None)


def _failed_assertion(found: list[Problem]) -> BaseException | None:
    """Return the first assertion that failed in a callback, or None."""
    return next((p.exception for p in found if p.kind == "assertion" and p.exception), None)


def _failure(run: Run, clouds: list[Cloud]) -> BaseException | None:
    found = _failing_violations(run, clouds)
    if not found:
        return None
    ending = _ending(found)
    if ending is not None:
        return ending
    text = (
        f"fakecloud: the test passed, but with {counted(len(found), 'strict-mode violation')}\n"
        + "\n".join(_described(clouds, {one.kind for one in found}))
    )
    failed = _failed_assertion(found)
    if failed is not None:
        # Raise the assertion itself, so that pytest shows its message, source line and values.
        failed.add_note(text)
        return failed
    failure = pytest.fail.Exception(text, pytrace=False)
    failure.__cause__ = next((p.exception for p in found if p.exception is not None), None)
    return failure


def _described(clouds: list[Cloud], kinds: set[str]) -> list[str]:
    """Describe the violations of these kinds, equal ones of a client that retries only once."""
    from .reporting.masking import Mask
    from .reporting.model import Lookups
    from .reporting.report import problems
    from .reporting.text import problem

    return [
        Mask(cloud).text(problem(one, Lookups()))
        for cloud in clouds
        for one in problems(cloud)
        if one.values.get("problem") in kinds
    ]


def _refused_clients(cloud: Cloud) -> list[str]:
    """Describe clients whose credentials were rejected, unless the test allows it."""

    def meant(call: Call) -> bool:
        facts = {"path": call.path, "method": call.method, "handle": call.handle}
        return cloud._allowed.covers("refused", facts)

    entries = cloud.journal.entries
    if not any(isinstance(e, Call) and e.status == 401 and not meant(e) for e in entries):
        return []
    from .reporting.model import Lookups
    from .reporting.report import rejected
    from .reporting.wording import sentence

    return [
        with_allowance(sentence(one, Lookups()), "refused", {"handle": one.fake})
        for one in rejected(cloud, every_call=True, meant=meant)
    ]


def finish(config: pytest.Config) -> None:
    """Close the fakes that outlive tests and write the index of timelines."""
    folder = run_of(config).options.timelines
    # An ``on_close`` callback may raise. The outcomes have been reported, so only print the error.
    with report_failure("fakecloud: no index of the timelines", partial(print, file=sys.stderr)):
        # A folder that could not be created has already been reported.
        if folder is not None and os.path.isdir(folder):
            from .reporting.page import write_index

            write_index(folder)
    with report_failure(
        "fakecloud: the session's fakes did not close", partial(print, file=sys.stderr)
    ):
        end(config)
