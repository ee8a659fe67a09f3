"""A worker that reads a topic with a consumer group: work first, commit after, never lose a record."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import requests

Record = dict[str, Any]


@dataclass
class Worker:
    """One member of a group. ``handle`` does the work and may see a record more than once.

    What the group has not committed comes again after a crash or a rebalance, perhaps to another
    worker; the places done already are kept so that this one does not repeat its own work.
    """

    url: str
    auth: tuple[str, str]
    group: str
    name: str
    topic: str
    handle: Callable[[Record], None]
    done: set[tuple[int, int]] = field(default_factory=set)

    def poll(self, timeout_ms: int = 1000) -> list[Record]:
        """The next records; joins the group on the first call, and again after being expelled."""
        answer = self._post(
            "consume",
            {"topic": self.topic, "timeout": timeout_ms},
            {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"},
        )
        answer.raise_for_status()
        return list(answer.json())

    def work(self, records: list[Record]) -> bool:
        """Handle the records, then commit them; False when they are no longer ours to commit.

        A conflict (409) or an unknown instance (404) means that the group has moved on without us:
        somebody else will get the records, so there is nothing to repair.
        """
        ends: dict[int, int] = {}
        for record in records:
            place = (record["partition"], record["offset"])
            if place not in self.done:
                self.handle(record)
                self.done.add(place)
            ends[record["partition"]] = record["offset"] + 1
        if not ends:
            return True
        offsets = [{"topic": self.topic, "partition": p, "offset": o} for p, o in ends.items()]
        answer = self._post("commit", offsets)
        if answer.status_code in (404, 409):
            return False
        answer.raise_for_status()
        return True

    def run_until_empty(self) -> None:
        """Poll and work until nothing is left for this member."""
        while records := self.poll(timeout_ms=0):
            self.work(records)

    def leave(self) -> None:
        """Leave the group, so that others take over at once."""
        self._post("delete-consumer").raise_for_status()

    def _post(
        self, call: str, body: object = None, headers: dict[str, str] | None = None
    ) -> requests.Response:
        return requests.post(
            f"{self.url}/{call}/{self.group}/{self.name}",
            json=body,
            headers=headers,
            auth=self.auth,
            timeout=70,
        )
