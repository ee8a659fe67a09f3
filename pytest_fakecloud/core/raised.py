"""Describes the exceptions that an application's code raised."""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Mapping
from contextlib import suppress

from .clock import in_thread, loop_is_running
from .errors import chain_of, is_crash

_MAX_LINE_LENGTH = 80  # of a source line that is shown
_MAX_VALUE_LENGTH = 60  # of a value shown next to a source line
_LINKS = r"\n\s*For (?:more|further) information .*"
"""Lines in which httpx and pydantic refer to their documentation."""


def raised_text(
    exception: BaseException, subject: str = "the handler", verb: str = "raised"
) -> str:
    """Describe an exception that ``subject`` raised, with the last source line in the test or the
    application, unless it is long or repeats the exception.

    An exception of a library after a crash by ``explore()`` is a part of the crash.
    """
    from .libraries import is_library

    message = re.sub(_LINKS, "", str(exception))
    text = f"{subject} {verb} {type(exception).__name__}{message and f': {message}'}"
    trace = exception.__traceback__
    calls = list(zip(traceback.extract_tb(trace), traceback.walk_tb(trace), strict=True))
    own = [call for call in calls if not is_library(call[0].filename)]
    if is_crash(exception) or (not own and any(map(is_crash, chain_of(exception)))):
        calls = own
        text = f"{subject} crashed"
    if not calls:
        return text
    last, (frame, _) = (own or calls)[-1]
    line, source = last.line or "", ""
    if own and 0 < len(line) <= _MAX_LINE_LENGTH and not line.startswith("raise "):
        source = f": {line}"
        # The exception names only the key or index, so show what was indexed.
        if isinstance(exception, LookupError):
            source += _indexed_values(frame.f_locals, line)
    text += f" ({os.path.basename(last.filename)}:{last.lineno} in {last.name}{source})"
    handled = exception.__context__
    is_shown = handled is not exception.__cause__ and not exception.__suppress_context__
    if handled is None or is_crash(exception) or not is_shown:
        return text
    places = [
        frame
        for frame in traceback.extract_tb(handled.__traceback__)
        if not is_library(frame.filename)
    ]
    place = f" ({os.path.basename(places[-1].filename)}:{places[-1].lineno})" if places else ""
    name = "a crash" if is_crash(handled) else type(handled).__name__
    return f"{text} while handling {name}{place}"


async def look_up_libraries(exception: BaseException) -> None:
    """Let ``raised_text()`` of an exception read no metadata of libraries in the running event loop, by
    reading it in a thread now. It is kept. Does nothing outside of an event loop.
    """
    if loop_is_running():
        with suppress(Exception):  # Its __str__ may raise.
            await in_thread(raised_text, exception)


def _indexed_values(names: Mapping[str, object], line: str) -> str:
    """Return the short dicts and lists that are indexed in a line, which may lack a key or item."""
    texts = []
    for name in dict.fromkeys(re.findall(r"\b([A-Za-z_]\w*)\[", line)):
        value = names.get(name)
        if type(value) not in (dict, list):
            continue
        with suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, ensure_ascii=False)
            if len(text) <= _MAX_VALUE_LENGTH:
                texts.append(f"; {name} is {text}")
    return "".join(texts)
