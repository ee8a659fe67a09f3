"""The generated pages and files: their paths and the functions that write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from . import (
    api,
    assistants,
    control,
    differences,
    errors,
    kv_commands,
    libraries,
    options,
    scenarios,
    settings,
)

DOCS = Path(__file__).resolve().parents[1]
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/api.md": api.index,
    **api.pages(),
    "reference/fixtures.md": options.fixtures_page,
    "reference/settings.md": settings.page,
    "reference/options.md": options.page,
    "control-api.json": control.openapi,
    "reference/control-api.md": control.page,
    "reference/state.schema.json": control.state_schema,
    "reference/kv-commands.md": kv_commands.page,
    "reference/errors.md": errors.page,
    "reference/libraries.md": libraries.page,
    "reference/scenarios.md": scenarios.page,
    "fidelity/differences.md": differences.page,
    "llms.txt": assistants.llms_txt,
    assistants.SKILL: assistants.skill,
}
