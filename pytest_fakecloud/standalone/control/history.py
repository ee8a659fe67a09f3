"""Endpoints for the data of fakes over time: what an entry changed, what was before it, and versions."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, cast

from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...core.calls import Call, Event
from ...core.timers import to_datetime
from ...http.messages import Request
from ...http.routing import Route
from ...inspect.data import (
    StateChange,
    can_put_back,
    parts_of_value,
    read_time,
    short_item,
    whole_number,
)
from ...reporting.lookups import records_of
from ...reporting.render import replayed
from ..copied_tests import in_go, in_pytest, in_vitest
from ..copied_tests.plan import NoTest, RecordedExchange, fake_of, plan
from . import shapes
from .clouds import (
    RecordOnce,
    as_restored,
    changed_by_restore,
    described_changes,
    is_restore,
    not_restored,
    number_of_first,
    record_restore,
    shown_change,
    states_of,
)
from .data import row_numbered
from .endpoints import PREFIX, Part, Refused, contract, fake_named, fields, named
from .repeats import repeats


class _OwnItems(NamedTuple):
    """The items of a fake that a restore changed and that are still so, by section, and its row."""

    row: int
    items: Mapping[str, Sequence[str]]


class HistoryRoutes(Part):
    """Endpoints that read and restore the data that fakes had before an entry of the journal."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._rewinder: Any = None

    def begin(self) -> None:
        """Remember the data of the fakes from now on."""
        self._rewinder = replayed.rewinder(self._cloud)

    def end(self) -> None:
        if self._rewinder is not None:
            self._rewinder.close()

    def note_change(self) -> None:
        """Note that a request of the control API may have changed data."""
        if self._rewinder is not None:
            self._rewinder.note_change()

    def copy_now(self) -> None:
        """Remember the present data, because it is about to change without a call."""
        if self._rewinder is not None:
            self._rewinder.copy_now()

    def can_put_back(self, fake: Fake, section: str) -> bool:
        """Return whether items of a section of a fake can be put back alone, from data of before."""
        return self._rewinder is not None and self._rewinder.can_put_back(fake, section)

    @classmethod
    def routes(cls) -> list[Route]:
        entry = f"{PREFIX}/journal/{{number}}"
        return [
            cls.route("GET", f"{entry}/changes", "row_changes", cls.get_changes),
            cls.route("GET", f"{entry}/data", "data_before", cls.get_data),
            cls.route("GET", f"{entry}/again", "row_again", cls.get_again),
            cls.route("GET", f"{entry}/tests", "tests_of_row", cls.get_tests),
            cls.route("GET", f"{entry}/since", "changes_since", cls.get_changes_since),
            cls.route("POST", f"{entry}/restore", "restore_before", cls.restore),
            cls.route("POST", f"{PREFIX}/journal", "record_change", cls.record_change),
            cls.route("GET", f"{PREFIX}/fakes/{{name}}/versions", "versions", cls.get_versions),
        ]

    def get_changes(self, request: Request) -> shapes.RowChanges:
        """Return the data that a row of the journal changed, before and after it.

        ``note`` says why that is not known: ``changes`` is then null. Data changes only by entries and
        by the clock; what other requests of the control API change is no row. ``undo`` has the items
        with which ``POST /journal/{number}/restore`` undoes the row alone; ``why_no_undo`` says why it
        cannot.
        """
        number = self._number(request)
        try:
            with self.known() as rewinder:
                item_changes = rewinder.changes(number)
        except Refused as error:
            if error.status == 404:
                raise
            return {"changes": None, "note": error.message, "undo": None, "why_no_undo": ""}
        changes = [shown_change(change) for change in item_changes]
        undo, why_no_undo = self._undo_of(item_changes)
        return {"changes": changes, "note": "", "undo": undo, "why_no_undo": why_no_undo}

    def get_data(self, request: Request) -> shapes.DataBefore:
        """Return items of a fake as they were just before a row: ``?section=keys&items=["a","b"]``.

        ``items`` is a JSON list of names. An item that did not exist is missing.
        """
        section, items = request.query("section") or "", _items(request)
        with self.known() as rewinder:
            return {"items": rewinder.items_before(self._number(request), section, items)}

    def get_again(self, request: Request) -> shapes.MadeAgain:
        """Return what makes a recorded call or delivery again.

        ``request`` is the request without credentials, for a delivery the one that publishes the
        message; null for commands on a connection. ``is_cut`` says that only the beginning of its body
        is known.
        ``why_no_test`` says why no test would be honest; empty if there may be one.
        """
        exchange = self._exchange(request)
        sent = exchange.request_again()
        return {
            "request": None if sent is None else cast("shapes.RequestAgain", asdict(sent)),
            "why_no_test": exchange.why_no_test(),
        }

    def get_tests(self, request: Request) -> shapes.CopiedTests:
        """Return tests that make a recorded call or delivery again, by the name of their language.

        Each sets up the data that was there before, and asserts the recorded answer. If no test would
        be honest, or what it needs is not known, ``tests`` is empty and ``why_not`` says why.
        """
        try:
            test = plan(self._exchange(request), _Past(self))
        except NoTest as reason:
            return {"tests": {}, "why_not": str(reason)}
        tests = {"pytest": in_pytest.written(test), "Vitest": in_vitest.written(test)}
        if (text := in_go.written(test)) is not None:
            tests["Go"] = text
        return {"tests": tests, "why_not": ""}

    def _exchange(self, request: Request) -> RecordedExchange:
        row = row_numbered(self._cloud, self._number(request))
        if not (row["rules"]["is_received"] or row["rules"]["is_sent"]):
            raise Refused(404, f"row {row['number']} is neither a call nor a delivery")
        fake = fake_named(self._cloud, fake_of(row))
        return RecordedExchange(row, fake.fixture, fake.url, fake.headers)

    def get_changes_since(self, request: Request) -> shapes.Changes:
        """Return what changed since just before a row, in all fakes or in ``?fake=``.

        A restore undoes exactly these changes. Without ``?fake=``, fakes whose earlier data is not
        known are in ``not_compared``. ``?section=keys&items=["a","b"]`` limits them to the
        items that a restore of these puts back. ``?as_restored=yes`` leaves out keys that expire at
        once when all data of a fake is restored, and dead letters that are too old by now:
        ``not_restored`` has their number. Keys that are put back alone lose a TTL that has ended.
        With ``?own=yes``, the row is that of a restore, and they are limited to the items that it
        changed and that nothing has changed since; ``why_not_own`` says why these cannot be put back
        alone. With ``?unknown=ok``, data that is not known is no error: ``why_unknown`` says why.
        """
        number = self._number(request)
        if request.query("own") == "yes":
            return self._own_changes(number)
        try:
            return self._changes_since(request, number)
        except Refused as error:
            if error.status != 422 or request.query("unknown") != "ok":
                raise
            return {**described_changes({}, {}), "why_unknown": error.message}

    def _changes_since(self, request: Request, number: int) -> shapes.Changes:
        with self.known() as rewinder:
            name = request.query("fake")
            data_before, unknown = self._before(rewinder, number, name, skips_unknown=not name)
            states: Mapping[str, Any] = {fake.name: data.state for fake, data in data_before}
        items = _items(request) if request.query("items") else None
        now, before = states_of(self._cloud), states
        if items is None and is_restore(request):
            states = as_restored(self._cloud, states)
        changes = described_changes(
            {**states, **dict.fromkeys(unknown)},
            {name: now.get(name) for name in states},
            lambda change: (
                items is None
                or (change.section == request.query("section") and change.item in items)
            ),
            self._cloud.fakes(),
        )
        return {**changes, "not_restored": not_restored(before, states, now)}

    def _own_changes(self, number: int) -> shapes.Changes:
        """Return what a restore changed in the items that nothing has changed since."""
        try:
            own = self._own_items(number)
        except Refused as error:
            if error.status == 404:
                raise
            return {**described_changes({}, {}), "why_not_own": error.message}
        with self.known() as rewinder:
            before = {
                name: rewinder.before(row, fake_named(self._cloud, name)).state
                for name, (row, _) in own.items()
            }
        now = states_of(self._cloud)
        return described_changes(
            before,
            {name: now.get(name) for name in before},
            lambda change: change.item in own[change.fake].items.get(change.section, ()),
            self._cloud.fakes(),
        )

    def _own_items(self, number: int) -> dict[str, _OwnItems]:
        """Return the items that a restore changed and that are still so, by the fakes of its rows.

        Raise ``Refused`` if the row is not that of a restore, or if some items cannot be put back
        alone.
        """
        own: dict[str, _OwnItems] = {}
        now = states_of(self._cloud)
        for event in self._rows_of_restore(number):
            fake = fake_named(self._cloud, event.fake)
            with self.known() as rewinder:
                changes = rewinder.changes(event.number)
            state = now.get(fake.name)
            if state is None:
                raise Refused(422, f"{fake.name} has too much data to compare")
            items: dict[str, list[str]] = {}
            for change in changes:
                if not can_put_back(fake, change.section):
                    raise Refused(422, f"{change.section} of {fake.name} cannot be put back alone")
                if state.get(change.section, {}).get(change.item) == change.after:
                    items.setdefault(change.section, []).append(change.item)
            own[fake.name] = _OwnItems(event.number, items)
        return own

    def _rows_of_restore(self, number: int) -> list[Event]:
        """Return the rows of a restore, one of each fake, from the first of them on."""
        rows: list[Event] = []
        for entry in self._cloud.journal.entries:
            if entry.number < number:
                continue
            if (
                not isinstance(entry, Event)
                or (entry.kind, entry.number) != ("restored", number + len(rows))
                or entry.fake in {row.fake for row in rows}
                or (rows and entry.data.get("row") != rows[0].data.get("row"))
            ):
                break
            rows.append(entry)
        if not rows:
            raise Refused(422, f"row {number} is not that of a restore")
        return rows

    def restore(self, request: Request) -> shapes.Restored:
        """Restore the data that all fakes, or one (``fake``), had just before a row of the journal.

        ``{"fake", "section", "items"}`` puts only these items back, such as some keys, and leaves what
        has changed otherwise; with ``"after": true`` as they were just after the row, which is the last
        that is known of a key before its TTL ended. Faults and clock do not change. Nothing is restored
        if the data of one of the fakes is not known, except with ``"skip_unknown": true``, which
        restores the others, as ``restored`` names them. ``row`` is the number of the first row that
        records the restore, of which each fake that changed has one: to restore to just before it
        undoes the restore. It is 0 if nothing had changed. With ``"own": true``, the row is that of a
        restore, of which only the items are put back that nothing has changed since.
        """
        body, number = fields(request), self._number(request)
        if body.get("own") is True:
            return self._restore_own(number)
        items, fakes = body.get("items"), self._fakes(body.get("fake"))
        after = body.get("after") is True
        if after and items is None:
            raise Refused(
                422, "only items can be restored to just after a row: pass section and items"
            )
        if items is not None:
            what = items[0] if len(items) == 1 else f"{len(items)} items"
            section = body.get("section", "")
            of_items = {fake.name: {section: items} for fake in fakes}
            moment = f"just {'after' if after else 'before'} #{number}"
            record = RecordOnce(partial(record_restore, fakes, what, moment, of_items, row=number))
            with self.known() as rewinder, contract():
                rewinder.put_back(number, section, items, record, after=after)
            return {"restored": [fake.name for fake in fakes], "row": record.row}
        with self.known() as rewinder:
            data_before, _ = self._before(
                rewinder, number, body.get("fake"), skips_unknown=body.get("skip_unknown") is True
            )
            fakes = [fake for fake, _ in data_before]
            now = states_of(self._cloud)
            changed = changed_by_restore(
                {fake.name: now.get(fake.name) for fake in fakes},
                {fake.name: data.state for fake, data in data_before},
            )
            row = record_restore(fakes, "", f"just before #{number}", changed, row=number)
            for fake, data in data_before:
                fake.restore(data.snapshot)
            rewinder.note_change()
        return {"restored": [fake.name for fake in fakes], "row": row}

    def _restore_own(self, number: int) -> shapes.Restored:
        """Put back the items that a restore changed and that nothing has changed since."""
        own = {name: changed for name, changed in self._own_items(number).items() if changed.items}
        fakes = [fake_named(self._cloud, name) for name in own]
        what, moment = f"what the restore #{number} changed", f"just before #{number}"
        of_items = {name: items for name, (_, items) in own.items()}
        record = RecordOnce(partial(record_restore, fakes, what, moment, of_items, row=number))
        with self.known() as rewinder, contract():
            for row, items in own.values():
                for section, names in items.items():
                    rewinder.put_back(row, section, names, record)
        return {"restored": list(own), "row": record.row}

    def record_change(self, request: Request) -> shapes.Recorded:
        """Record a change of data that is about to be made by another request of the control API.

        ``{"what": "create the topic orders", "fake": name}``; without a fake, all data may change. To
        restore the data to just before ``row``, the number of the first row, undoes the change. Without
        any fake it is 0.
        """
        body = fields(request)
        fakes = self._fakes(body.get("fake"))
        self.copy_now()
        events = (fake._recorder.add_event("changed", body["what"]) for fake in fakes)
        return {"row": number_of_first(events)}

    def get_versions(self, request: Request) -> shapes.Versions:
        """Return the versions of an item over time, oldest first, with the rows that made them.

        ``?section=keys&item=user:1`` names it as `changes` do; without an item, the whole section is
        one. ``number`` is 0 for what was there first, and for a change without a row. ``parts`` are
        the names of the fields of its value, of a list the ``first`` and the ``last`` element; with
        ``?part=`` the versions are those of this part alone. ``repeats`` are runs of equal increments
        by the same request, which can be shown as one. ``is_put_back`` says whether items of the
        section can be put back alone.
        """
        fake = named(self._cloud, request)
        section, item = request.query("section") or "", request.query("item") or ""
        with self.known() as rewinder:
            versions = rewinder.versions(fake, section, item)
        parts = sorted({name for version in versions for name in parts_of_value(version.fields)})
        if part := request.query("part"):
            versions = _versions_of_part(versions, part)
        return {
            "parts": parts[:_MOST_PARTS],
            "is_put_back": can_put_back(fake, section),
            "repeats": [
                {"first": repeat.first, "last": repeat.last, "by": repeat.by}
                for repeat in repeats(versions, self._requests().get)
            ],
            "versions": [
                {
                    "number": version.number,
                    "at": to_datetime(version.at_us).isoformat(),
                    "fields": None if version.fields is None else short_item(version.fields),
                    "expired": _expired(before, version) if section == "keys" and item else None,
                }
                for before, version in zip([None, *versions], versions, strict=False)
            ],
        }

    def statuses(self, message_ids: Collection[str]) -> dict[str, int | None]:
        """Return the status of the last attempt to deliver these messages and their callbacks to each
        URL.
        """
        return {
            entry.data["url"]: entry.data["status"]
            for entry in self._cloud.journal.entries
            if isinstance(entry, Event)
            and entry.kind == "attempt"
            and not {entry.data["message_id"], entry.data["about"]}.isdisjoint(message_ids)
        }

    def _requests(self) -> dict[int, Hashable]:
        """Return what was sent in each call, and whether by the console, by the number of its entry."""
        from_console = records_of(self._cloud).from_console
        return {
            entry.number: (entry.target, entry.request_body, entry.number in from_console)
            for entry in self._cloud.journal.entries
            if isinstance(entry, Call)
        }

    def _before(
        self, rewinder: Any, number: int, name: str | None, *, skips_unknown: bool
    ) -> tuple[list[tuple[Fake, Any]], list[str]]:
        """Return the data that fakes had before a row, and the names of those that were skipped because
        it is not known. Without any data, the reason of the first one is raised.
        """
        known, unknown, error = list[tuple[Fake, Any]](), list[str](), None
        for fake in self._fakes(name):
            try:
                known.append((fake, rewinder.before(number, fake)))
            except replayed.unknown() as reason:
                error = error or reason
                unknown.append(fake.name)
        if error is not None and not (skips_unknown and known):
            raise error
        return known, unknown

    def _undo_of(self, changes: Sequence[StateChange]) -> tuple[shapes.Undo | None, str]:
        """Return the items whose restore undoes only these changes, or None and the reason."""
        if not changes:
            return None, "This row changed no data. There is nothing to undo."
        fake, section = fake_named(self._cloud, changes[0].fake), changes[0].section
        sections = sorted({change.section for change in changes})
        is_put_back = len(sections) == 1 and can_put_back(fake, section)
        if is_put_back and len(changes) <= _MOST_UNDONE:
            return {"section": section, "items": [change.item for change in changes]}, ""
        what = f"{len(changes)} items of {section}" if is_put_back else ", ".join(sections)
        return None, (
            f"{what[:1].upper()}{what[1:]} cannot be put back alone: "
            f"Restore {fake.name} takes back all that has changed in it since."
        )

    def _fakes(self, name: str | None) -> list[Fake]:
        return list(self._cloud.fakes()) if not name else [fake_named(self._cloud, name)]

    @contextmanager
    def known(self) -> Iterator[Any]:
        """Yield what knows the data; raise ``Refused`` for what it does not know."""
        if self._rewinder is None:
            raise Refused(422, "This cloud does not remember its earlier data.")
        try:
            yield self._rewinder
        except LookupError as error:
            raise Refused(404, str(error.args[0])) from error
        except replayed.unknown() as error:
            raise Refused(422, f"The data is not known: {error}.") from error

    @staticmethod
    def _number(request: Request) -> int:
        return whole_number("number", request.params["number"]) or 0


class _Past:
    """The data that a test of a recorded call needs."""

    def __init__(self, routes: HistoryRoutes) -> None:
        self._routes = routes

    def items_before(self, number: int, section: str, items: list[str]) -> Mapping[str, Any]:
        with self._known() as rewinder:
            before: Mapping[str, Any] = rewinder.items_before(number, section, items)
            return before

    def changes(self, number: int) -> list[StateChange]:
        with self._known() as rewinder:
            changes: list[StateChange] = rewinder.changes(number)
            return changes

    def statuses(self, message_ids: list[str]) -> Mapping[str, int | None]:
        return self._routes.statuses(message_ids)

    @contextmanager
    def _known(self) -> Iterator[Any]:
        try:
            with self._routes.known() as rewinder:
                yield rewinder
        except Refused as error:
            raise NoTest(error.message) from error


_MOST_UNDONE = 100
"""Maximum number of items that are put back to undo a row."""


_MOST_PARTS = 1000


def _expired(before: Any, version: Any) -> str | None:
    """Return the time at which the TTL of an item ended, if it is gone because of that."""
    old = before and before.fields
    if version.fields is not None or not old or not old.get("expires"):
        return None
    ended = read_time(old["expires"])
    return ended.isoformat() if ended <= to_datetime(version.at_us) else None


def _versions_of_part(versions: list[Any], part: str) -> list[Any]:
    """Return the versions of a part of an item's value: those in which the part changed."""
    of_part: list[Any] = []
    for version in versions:
        parts = parts_of_value(version.fields)
        fields = {"value": parts[part]} if part in parts else None
        if (of_part[-1].fields if of_part else None) != fields:
            of_part.append(version._replace(fields=fields))
    return of_part


def _items(request: Request) -> list[str]:
    """Return the names that ``?items=`` lists as JSON."""
    text = request.query("items") or "[]"
    try:
        items = json.loads(text)
    except ValueError:
        items = None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise Refused(422, f"items must be a JSON list of names, got {text!r:.100}")
    return items
