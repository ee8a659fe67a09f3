"""The forms of the vectors in a vector set, without NumPy, which most servers do not need."""

from __future__ import annotations

from typing import Literal

Form = Literal["f32", "int8", "bin"]
FORMS: tuple[Form, ...] = ("f32", "int8", "bin")
"""The forms; files have their indexes."""
MOST_DIMENSIONS = 32_768
"""The highest number of dimensions; decided here, as for vector indexes."""
