"""Membership of consumer groups. The state's lock is held during all calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from .. import errors
from ..model import EventKind, consumer_config
from .log import Topic
from .members import GroupCopy, Instance, InstanceState, TimerKind, cancel, partitions_text
from .offsets import GroupOffsets
from .rebalancing import Rebalancer
from .state import BrokerState


class Coordinator:
    """Adds and removes the members of groups."""

    def __init__(self, state: BrokerState, offsets: GroupOffsets, rebalancer: Rebalancer) -> None:
        self._state = state
        self._settings = state.settings
        self._offsets = offsets
        self._rebalancer = rebalancer
        state.on_timer |= {"idle close": self._close_idle, "session": self._session_ran_out}

    def enter(
        self, group_name: str, name: str, topics: Sequence[str], headers: Mapping[str, str]
    ) -> Instance:
        """Return the instance of a consume request, which is created or rejoins if necessary.

        Raises ``BrokerError`` for unknown topics, invalid headers, and too many instances.
        """
        wanted = tuple(sorted(set(topics)))
        for topic in wanted:
            self._state.topic(topic)
        instance = self._state.find_instance(group_name, name)
        if instance is None or not instance.live:
            return self._create(group_name, name, wanted, headers)
        if instance.state == "expired":
            # Do not set the state to "joining": a joining instance may commit to any partition, but
            # this instance's former partitions may belong to another instance now.
            instance.state = "active"
            instance.topics = wanted
            self._rebalancer.rebalance(instance.group, f"{name} rejoined")
        elif wanted != instance.topics:
            instance.topics = wanted
            reason = f"{name} subscribed to {', '.join(wanted)}"
            self._rebalancer.rebalance(instance.group, reason)
        return instance

    def _create(
        self, group_name: str, name: str, topics: tuple[str, ...], headers: Mapping[str, str]
    ) -> Instance:
        config = consumer_config(headers, session_timeout_ms=self._settings.session_timeout_ms)
        groups = self._state.groups.values()
        live = [one.group.name for group in groups for one in group.instances.values() if one.live]
        scope = self._settings.instance_limit
        check_instance_limit(scope, group_name, live, self._state.topics.values())
        group = self._state.create_group(group_name)
        before = group.instances.get(name)
        instance = Instance(
            group, name, config, topics, self._state.clock.signal(), self._state.now_us
        )
        if before is not None:
            cancel(before)
            instance.state = "active"
        group.instances[name] = instance
        if before is not None and before.topics == topics:
            self._return(instance, before)
        else:
            text = f"{name} joined {group.name}, subscribed to {', '.join(topics)}"
            self._add_event("join", text, instance, topics=list(topics))
            self._rebalancer.rebalance(group, f"{name} joined", ("join", name))
        return instance

    def _return(self, instance: Instance, before: Instance) -> None:
        """Give the partitions of a static member to its new instance, without a rebalance.

        Like a new consumer, though, the instance starts at the committed offsets.
        """
        instance.assignment = before.assignment
        if instance.group.state == "Stable":
            self._rebalancer.activate(instance)
        kept = partitions_text(instance.assignment)
        text = (
            f"{instance.name} returned to {instance.group.name} within its session and keeps {kept}"
        )
        self._add_event("return", text, instance)

    def finish(self, instance: Instance, turn: object) -> None:
        """End a consume call. The next waiting call proceeds; after the last, idle timers start."""
        instance.consuming -= 1
        if instance.holder is turn:
            instance.holder = None
            if instance.consuming:
                self._state.woken.add(instance.signal)
        if instance.consuming or not instance.live:
            return
        for kind, left in self._idle_timers(instance).items():
            self._state.start_timer(instance, kind, left)

    def _idle_timers(self, instance: Instance) -> dict[TimerKind, int]:
        """Return the delays in microseconds of the timers that start when an instance is idle."""
        timers: dict[TimerKind, int] = {}
        if self._settings.idle_close_ms is not None:
            timers["idle close"] = self._settings.idle_close_ms * 1000
        return timers

    def delete(self, group_name: str, name: str) -> None:
        instance = self._state.instance(group_name, name)
        self._offsets.before_losing(instance)
        self._add_event("leave", f"{name} was deleted and left {group_name}", instance)
        self._remove(instance, f"{name} left", "leave")

    def crash(self, group_name: str, name: str) -> None:
        instance = self._state.instance(group_name, name)
        self._vanish(instance, "crashed", f"{name} of {group_name} crashed")

    def expire(self, group_name: str, name: str) -> None:
        instance = self._state.find_instance(group_name, name)
        if instance is None or not instance.member:
            known = {
                group.name: [one.name for one in group.members()]
                for group in self._state.groups.values()
            }
            raise errors.unknown_instance(group_name, name, known, "member")
        self._session_over(instance)

    def _close_idle(self, instance: Instance) -> None:
        if instance.consuming or not instance.live:
            return
        self._offsets.before_losing(instance)
        text = f"{instance.name} of {instance.group.name} was idle and was closed"
        self._vanish(instance, "closed", text, idle=True)

    def _vanish(
        self, instance: Instance, state: InstanceState, text: str, *, idle: bool = False
    ) -> None:
        """Close an instance, which stays a member until its session expires if it is one."""
        kind: EventKind = "crash" if state == "crashed" else "close"
        if not instance.member:
            self._remove(instance, text, kind)
            self._add_event(kind, text, instance)
            return
        cancel(instance)
        self._rebalancer.release(instance)
        instance.epoch += 1
        self._state.woken.add(instance.signal)
        instance.state = state
        left = instance.config.session_timeout_ms
        self._state.start_timer(instance, "session", left * 1000)
        until = self._state.now_us + left * 1000
        text = f"{text}; it keeps {partitions_text(instance.assignment)} for {left} ms"
        held = [list(one) for one in sorted(instance.assignment)]
        self._add_event(kind, text, instance, keeps=held, until_us=until, idle=idle)

    def _session_over(self, instance: Instance) -> None:
        text = f"the session of {instance.name} in {instance.group.name} expired"
        self._add_event("expire", text, instance)
        reason = f"the session of {instance.name} expired"
        if not instance.live:
            self._remove(instance, reason, "expire")
            return
        self._rebalancer.revoke(instance)
        instance.epoch += 1
        instance.state = "expired"
        cancel(instance, "session")
        self._rebalancer.rebalance(instance.group, reason, ("expire", instance.name))

    def _remove(self, instance: Instance, reason: str, kind: str) -> None:
        was_member = instance.member
        cancel(instance)
        self._rebalancer.revoke(instance)
        instance.epoch += 1
        instance.state = "removed"
        del instance.group.instances[instance.name]
        if was_member:
            self._rebalancer.rebalance(instance.group, reason, (kind, instance.name))

    def _session_ran_out(self, instance: Instance) -> None:
        if not instance.consuming:
            self._session_over(instance)

    def _add_event(self, kind: EventKind, text: str, instance: Instance, **data: Any) -> None:
        group = instance.group.name
        self._state.add_event(kind, text, group=group, instance=instance.name, **data)

    def copy_groups(self) -> list[GroupCopy]:
        copies = []
        for group in self._state.groups.values():
            left = {name: self._state.time_left(one) for name, one in group.instances.items()}
            for name, instance in group.instances.items():
                # The copy has no consume call in progress: add the timers that start at its end.
                if instance.consuming and instance.live:
                    left[name] |= self._idle_timers(instance)
            copy = group.copy(self._state.clock)
            copies.append(GroupCopy(copy, self._state.time_left(group), left))
        return copies

    def restore_groups(self, copies: list[GroupCopy]) -> None:
        for group in self._state.groups.values():
            cancel(group)
            for instance in group.instances.values():
                # Calls that still wait on a removed instance start no timers.
                instance.state = "removed"
                cancel(instance)
                self._state.woken.add(instance.signal)
        self._state.groups.clear()
        for copy in copies:
            group = self._state.groups[copy.group.name] = copy.group.copy(self._state.clock)
            for name, instance in group.instances.items():
                for kind, left in copy.timers[name].items():
                    self._state.start_timer(instance, kind, left)
                for tp in instance.positions:
                    self._state.log(tp).watchers.add(instance.signal)
            for kind, left in copy.own_timers.items():
                self._state.start_timer(group, kind, left)


def check_instance_limit(
    scope: Literal["cluster", "group"] | None,
    group: str,
    live: Iterable[str],
    topics: Iterable[Topic],
) -> None:
    """Raise ``BrokerError`` if a group may not have another instance.

    ``live`` contains the name of the group of each live instance.
    """
    if scope is None:
        return
    active = sum(scope == "cluster" or name == group for name in live)
    partitions = sum(len(topic.logs) for topic in topics)
    if active + 1 > partitions:
        raise errors.too_many_instances(active, partitions)
