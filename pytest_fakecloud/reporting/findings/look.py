"""The input of the detectors: the open fakes, the journal, the exception of the test."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...core.calls import Call, Event
from ..bodies import parsed
from ..model import Finding, Subject
from ..scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...any_cloud import AnyCloud
    from ..applications import Served

NONE = re.compile(r"(?<![A-Za-z0-9])None(?![A-Za-z0-9])")
"""``None`` as a separate word, which Python writes for a missing value."""


def about_key(
    kind: str, handle: Any, call: Call, key: str, evidence: Iterable[int] = (), /, **values: Any
) -> Finding:
    """Return a finding about a key, with the call that decided it and the numbers of other calls."""
    subject = Subject("key", key, handle.name)
    rows = tuple(dict.fromkeys((call.number, *evidence)))
    return Finding(kind, handle.name, rows, (subject,), {"key": key, **values})


def items_of(body: bytes) -> list[dict[str, Any]]:
    """Return the objects in a JSON body, which is one object or a list of them."""
    value = parsed(body)
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


class Look:
    """The input of the detectors: a cloud's open fakes, its journal by service, and the test's
    exception.
    """

    def __init__(
        self,
        cloud: AnyCloud,
        scene: Scene,
        idle_s: float | None = None,
        raised: BaseException | None = None,
        served: Sequence[Served] = (),
    ) -> None:
        self.cloud = cloud
        self.scene = scene
        self.idle_s = idle_s
        self.raised = raised
        self.served = served
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {handle.name: getattr(handle, "_rewound", 0) for handle in cloud.handles}
        self.entries = [
            one for one in cloud.journal.entries if one.number > rewound.get(one.handle, 0)
        ]

    @cached_property
    def calls(self) -> list[Call]:
        return [entry for entry in self.entries if isinstance(entry, Call)]

    def handles(self, service: str) -> list[Any]:
        return [handle for handle in self.cloud.handles if handle.service == service]

    def calls_of(self, handle: Any) -> list[Call]:
        return [call for call in self.calls if call.handle == handle.name]

    def events(self, kind: str) -> list[Event]:
        return [e for e in self.entries if isinstance(e, Event) and e.kind == kind]
