"""What the steps of a report after the rows know of a test."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import Fake, core_of
from ..core.calls import Action, Call, Entry
from ..core.frames import CodePlace
from ..core.libraries import outside_libraries
from .calls import calls_in
from .lookups import Lookups, records_of
from .model import Delivery, OrderedAccess, ReportRow
from .rows.rows import places_of
from .statement.failed import UnequalValues


@dataclass
class ObservedTest:
    """What these steps know: the open fakes of its cloud, the journal, its rows and their accesses in
    order, the wall-clock time in seconds that it waited, its exception, the last values that it found
    unequal, and the errors in parts of its report, to which each step adds lines. ``entries`` and
    ``calls`` begin after the last restore of their fake, ``rows`` and ``accesses`` have all.
    """

    cloud: BaseCloud
    lookups: Lookups
    rows: Sequence[ReportRow] = ()
    accesses: Sequence[OrderedAccess] = ()
    idle_s: float | None = None
    raised: BaseException | None = None
    unequal: UnequalValues | None = None
    errors: list[str] = field(default_factory=list)

    @cached_property
    def by_number(self) -> dict[int, ReportRow]:
        return {row.number: row for row in self.rows}

    @cached_property
    def fakes(self) -> list[Fake]:
        return list(context_of(self.cloud).fakes)

    @cached_property
    def entries(self) -> list[Entry]:
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {fake.name: core_of(fake).rewound for fake in self.fakes}
        return [_as_known(entry) for entry in self.cloud.journal.entries
                if entry.number > rewound.get(entry.fake, 0)]  # fmt: skip

    @cached_property
    def calls(self) -> list[Call]:
        return calls_in(self.entries)

    @cached_property
    def places(self) -> dict[int, tuple[CodePlace, ...]]:
        """The places outside libraries that made each call and request, the innermost first."""
        requests = {row.number: outside_libraries(request.stack.places) for row in self.rows
                    if (request := row.source.request) and request.stack}  # fmt: skip
        return requests | places_of(records_of(self.cloud))

    def calls_of(self, fake: Fake) -> list[Call]:
        return [call for call in self.calls if call.fake == fake.name]

    def actions_on(self, fake: Fake) -> list[Action]:
        return [action for action in records_of(self.cloud).actions if action.fake == fake.name]

    def deliveries_of(self, fake: Fake) -> Iterator[tuple[ReportRow, Delivery]]:
        """Yield the row and the data of each delivery of a fake."""
        rewound = core_of(fake).rewound
        for row in self.rows:
            delivery = row.source.delivery
            if delivery and delivery.event.fake == fake.name and delivery.event.number > rewound:
                yield row, delivery


def _as_known(entry: Entry) -> Entry:
    """Return a copy of a call without the body that a fault altered, which is no data of the fake."""
    if not isinstance(entry, Call) or entry.outcome != "altered":
        return entry
    copied_call = copy.copy(entry)
    copied_call.response_body = b""
    return copied_call
