"""Values as literals of the languages in which tests are written."""

from __future__ import annotations

import json
import re
from typing import Any


def quoted(text: str) -> str:
    """Return a string literal that Python, JavaScript and Go read alike."""
    return _escaped(json.dumps(text, ensure_ascii=False))


def javascript(value: Any) -> str:
    """Return a literal of JavaScript for plain JSON."""
    return _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def python(value: Any) -> str:
    """Return a literal of Python, with double quotes, for plain JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quoted(name)}: {python(item)}' for name, item in value.items())}}}"
    return f"[{', '.join(map(python, value))}]" if isinstance(value, list) else repr(value)


def _escaped(text: str) -> str:
    """Escape what UTF-8 cannot contain or nobody can see."""
    return re.sub("[\x7f\ud800-\udfff]", lambda sign: f"\\u{ord(sign[0]):04x}", text)
