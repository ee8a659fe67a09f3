"""Describes exceptions of handlers, with the source line in the test or the application."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress

from ..core.errors import formatted
from ..core.recorder import is_library
from .model import Outcome
from .wire.delivery import failure_text

_MAX_LINE_LENGTH = 80
"""Maximum length of a source line that is shown."""
_MAX_VALUE_LENGTH = 60
"""Maximum length of a value shown next to a source line."""


def raised_text(exception: BaseException, did: str = "the handler raised") -> str:
    """Describe a handler's exception, with the last source line in the test or the application.

    The text begins with ``did``. The source line is left out if it is long or repeats the
    exception.
    """
    # Imported here, because most handlers raise no exception.
    import traceback

    text = f"{did} {type(exception).__name__}"
    if str(exception):
        text += f": {exception}"
    trace = exception.__traceback__
    calls = list(zip(traceback.extract_tb(trace), traceback.walk_tb(trace), strict=True))
    if not calls:
        return text
    own = [call for call in calls if not is_library(call[0].filename)]
    last, (frame, _) = (own or calls)[-1]
    line, source = last.line or "", ""
    if own and 0 < len(line) <= _MAX_LINE_LENGTH and not line.startswith("raise "):
        source = f": {line}"
        # The exception names only the key or index, so show what was indexed.
        if isinstance(exception, LookupError):
            source += _indexed_values(frame.f_locals, line)
    return f"{text} ({os.path.basename(last.filename)}:{last.lineno} in {last.name}{source})"


def _indexed_values(names: Mapping[str, object], line: str) -> str:
    """Return the short dicts and lists that are indexed in a line, which may lack a key or item."""
    shown = []
    for name in dict.fromkeys(re.findall(r"\b([A-Za-z_]\w*)\[", line)):
        value = names.get(name)
        if type(value) not in (dict, list):
            continue
        with suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, ensure_ascii=False)
            if len(text) <= _MAX_VALUE_LENGTH:
                shown.append(f"; {name} is {text}")
    return "".join(shown)


def attempt_note(outcome: Outcome) -> str | None:
    """Return why an attempt failed, or None if its status shows it."""
    if outcome.exception is None or outcome.unstubbed is not None:
        return None
    if outcome.status is None:
        return failure_text(outcome)
    if outcome.delivered:
        # The exception came after the response. Otherwise, the status would be 500.
        return raised_text(outcome.exception, "after the response, a background task raised")
    return raised_text(outcome.exception)


def handler_traceback(outcome: Outcome) -> str | None:
    """Return the traceback of a handler whose exception became an error response, or None."""
    if outcome.exception is None or outcome.status is None:
        return None
    return formatted(outcome.exception)
