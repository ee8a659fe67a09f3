"""The effects in rows of the command table."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.table.columns import Effects


@pytest.mark.parametrize("word", ["expires", "value", "value@x", "hours@2", "event"])
def test_an_unknown_effect_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match=f"^'{word}' is not an effect of a command; the effects"):
        Effects(f"time {word}")


def test_a_row_overrides_the_effects_of_its_group() -> None:
    assert Effects("no-rest rest").over_rest is True
