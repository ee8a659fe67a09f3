"""The words for true and false in a file or in a variable."""

from __future__ import annotations

from collections.abc import Mapping

SWITCH_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off", ""), False),
}
"""The words, in lower case."""
