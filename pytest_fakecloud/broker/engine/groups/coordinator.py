"""Membership of consumer groups, and assignment of partitions to members.

The engine calls these functions with its lock held, as ``table`` describes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import errors
from ...model import EventKind, GroupAssignments, TopicPartition, consumer_config, distinct
from .assignment import range_assignment
from .commits import Commits
from .delivery import GroupDelivery
from .members import (
    ConsumerGroup,
    GroupCopy,
    Instance,
    InstanceState,
    by_topic,
    cancel,
    cancel_timers,
    copied,
    names,
)
from .table import GroupTable


class Coordinator:
    """Adds and removes members of groups, and assigns partitions to them."""

    def __init__(self, table: GroupTable, commits: Commits, delivery: GroupDelivery) -> None:
        self._table = table
        self._settings = table.settings
        self._commits = commits
        self._delivery = delivery

    # -- consuming -------------------------------------------------------------------------------

    def enter(
        self,
        group_name: str,
        name: str,
        topics: Sequence[str],
        headers: Mapping[str, str],
        now: int,
    ) -> tuple[ConsumerGroup, Instance]:
        """Return the instance of a consume request. If necessary, create it or make it rejoin its
        group.

        Raises ``BrokerError`` for unknown topics, invalid configuration headers, and too many
        instances. Nothing has changed then.
        """
        wanted = distinct(topics)
        for topic in wanted:
            self._table.topic(topic, now)
        group = self._table.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.live:
            return self._create(group_name, name, wanted, headers, now)
        if instance.state == "expired":
            # Do not set the state to "joining": a joining instance may commit to any partition, but
            # this instance's former partitions may belong to another instance now.
            instance.state = "active"
            instance.topics = wanted
            self.rebalance(group, f"{name} rejoined", now)
        elif wanted != instance.topics and self._settings.resubscribe == "rebalance":
            instance.topics = wanted
            self.rebalance(group, f"{name} subscribed to {', '.join(wanted)}", now)
        return group, instance

    def _create(
        self,
        group_name: str,
        name: str,
        topics: tuple[str, ...],
        headers: Mapping[str, str],
        now: int,
    ) -> tuple[ConsumerGroup, Instance]:
        config = consumer_config(headers, session_timeout_ms=self._settings.session_timeout_ms)
        self._check_instance_limit(group_name)
        group = self._table.groups.get(group_name)
        if group is None:
            group = self._table.groups[group_name] = ConsumerGroup(group_name)
        before = group.instances.get(name)
        instance = Instance(name, config, topics, self._table.clock.signal(), now)
        if before is not None:
            cancel_timers(before)
            instance.state = "active"
        group.instances[name] = instance
        if before is not None and before.topics == topics:
            # Do not rebalance if a static member returns within its session. Like a new consumer,
            # though, it starts at the committed offsets.
            instance.assignment = before.assignment
            if group.state == "Stable":
                self._activate(group, instance, now)
            kept = names(instance.assignment)
            text = f"{name} returned to {group.name} within its session and keeps {kept}"
            self._tell("return", text, now, group, instance)
        else:
            text = f"{name} joined {group.name}, subscribed to {', '.join(topics)}"
            self._tell("join", text, now, group, instance, topics=list(topics))
            self.rebalance(group, f"{name} joined", now, ("join", name))
        return group, instance

    def _check_instance_limit(self, group_name: str) -> None:
        scope = self._settings.instance_limit
        if scope is None:
            return
        active = sum(
            instance.live
            for group in self._table.groups.values()
            if scope == "cluster" or group.name == group_name
            for instance in group.instances.values()
        )
        partitions = sum(len(topic.logs) for topic in self._table.topics.values())
        if active + 1 > partitions:
            raise errors.too_many_instances(active, partitions)

    def finish(self, group: ConsumerGroup, instance: Instance, turn: object, now: int) -> None:
        """End a consume call. The next waiting call may proceed; after the last one, idle timers
        start.
        """
        instance.consuming -= 1
        if instance.holder is turn:
            instance.holder = None
            if instance.consuming:
                self._table.woken.add(instance.signal)
        if instance.consuming or not instance.live:
            return
        for kind, left in self._idle_timers(instance).items():
            self._arm(group, instance, kind, now + left)

    def _idle_timers(self, instance: Instance) -> dict[str, int]:
        """Return the timers that start when an instance stops consuming, with their delays in
        microseconds.
        """
        timers = {}
        if self._settings.idle_close_ms is not None:
            timers["idle close"] = self._settings.idle_close_ms * 1000
        if self._settings.heartbeats == "consume" and instance.member:
            timers["session"] = instance.config.session_timeout_ms * 1000
        return timers

    # -- rebalancing -----------------------------------------------------------------------------

    def grew(self, topic: str, now: int) -> None:
        """Rebalance the groups that subscribe to a topic whose partition count has increased."""
        self._rebalance_readers(topic, f"{topic} has more partitions", now)

    def created(self, topic: str, now: int) -> None:
        """Rebalance the groups that already subscribe to a newly created topic.

        A group can keep its subscription when the topic is deleted.
        """
        self._rebalance_readers(topic, f"{topic} was created", now)

    def deleted(self, topic: str, now: int) -> None:
        """Remove a deleted topic's offsets and deliveries, and rebalance the groups that subscribe
        to it.
        """
        for group in self._table.groups.values():
            group.forget(topic)
        self._rebalance_readers(topic, f"{topic} was deleted", now)

    def _rebalance_readers(self, topic: str, reason: str, now: int) -> None:
        for group in list(self._table.groups.values()):
            if any(topic in member.topics for member in group.members()):
                self.rebalance(group, reason, now)

    def rebalance(
        self, group: ConsumerGroup, reason: str, now: int, cause: tuple[str, str] = ("", "")
    ) -> None:
        """Revoke all partitions of a group and assign them again.

        ``cause`` is the kind of event and the instance that caused the rebalance, and ``reason``
        describes them. Members with auto-commit first commit the records that they received.
        """
        members = group.members()
        for instance in group.instances.values():
            self._commits.before_losing(group, instance, now)
            self._revoke(instance)
        group.reason, group.cause = reason, cause
        if not members:
            self._empty(group, now)
        elif self._settings.join_delay_ms:
            if group.state != "PreparingRebalance" or group.timer is None:
                self._plan_completion(group, now + self._settings.join_delay_ms * 1000)
            group.state = "PreparingRebalance"
            self._table.tell(
                "rebalance started",
                f"{group.name} rebalances: {reason}; all partitions are revoked",
                now,
                group=group.name,
                reason=reason,
                cause=cause,
            )
        else:
            self._complete(group, now)

    def _complete(self, group: ConsumerGroup, at: int) -> None:
        self._table.set_timer(group, None)
        members = group.members()
        group.generation += 1
        group.state = "Stable"
        shares = range_assignment(
            {member.name: member.topics for member in members},
            {name: len(topic.logs) for name, topic in self._table.topics.items()},
        )
        for member in members:
            member.assignment = shares[member.name]
            if member.live:
                self._activate(group, member, at)
        self._tell_rebalance(group, shares, at)

    def _tell_rebalance(
        self, group: ConsumerGroup, shares: Mapping[str, Sequence[TopicPartition]], at: int
    ) -> None:
        text = "; ".join(f"{name}: {names(share)}" for name, share in shares.items())
        self._table.tell(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): {text or 'no members'}",
            at,
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            cause=group.cause,
            assignment={name: [tuple(tp) for tp in share] for name, share in shares.items()},
        )

    def _activate(self, group: ConsumerGroup, instance: Instance, now: int) -> None:
        instance.state = "active"
        for tp in instance.assignment:
            self._table.topic(tp.topic, now)
            position = self._delivery.start_position(group, instance, tp)
            instance.positions[tp] = position
            if position is not None:
                instance.starts[tp] = position
            self._table.log(tp).watchers.add(instance.signal)
        self._table.woken.add(instance.signal)

    def _revoke(self, instance: Instance) -> None:
        self._release(instance)
        if instance.state != "joining":
            instance.epoch += 1
        instance.assignment = []
        self._table.woken.add(instance.signal)

    def _release(self, instance: Instance) -> None:
        for tp in instance.assignment:
            if tp.topic in self._table.topics:
                self._table.log(tp).watchers.discard(instance.signal)
        instance.positions.clear()
        instance.starts.clear()
        instance.delivered.clear()
        cancel(instance, "auto commit")

    def _empty(self, group: ConsumerGroup, now: int) -> None:
        group.generation += 1
        group.state = "Empty"
        self._tell_rebalance(group, {}, now)
        self._commits.retain(group, now)

    def _plan_completion(self, group: ConsumerGroup, due: int) -> None:
        self._table.set_timer(group, due, lambda at: self._complete(group, at), "rebalance")

    # -- leaving ---------------------------------------------------------------------------------

    def delete(self, group_name: str, name: str, now: int) -> None:
        group, instance = self._table.instance(group_name, name)
        self._commits.before_losing(group, instance, now)
        if not self._settings.delete_leaves and instance.member:
            self._vanish(group, instance, "closed", f"{name} of {group.name} was deleted", now)
            return
        self._tell("leave", f"{name} was deleted and left {group.name}", now, group, instance)
        self._remove(group, instance, f"{name} left", now, "leave")

    def crash(self, group_name: str, name: str, now: int) -> None:
        group, instance = self._table.instance(group_name, name)
        self._vanish(group, instance, "crashed", f"{name} of {group.name} crashed", now)

    def expire(self, group_name: str, name: str, now: int) -> None:
        group = self._table.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.member:
            raise errors.unknown_instance(group_name, name)
        self._session_over(group, instance, now)

    def _close_idle(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        if instance.consuming or not instance.live:
            return
        self._commits.before_losing(group, instance, at)
        self._vanish(
            group,
            instance,
            "closed",
            f"{instance.name} of {group.name} was idle and was closed",
            at,
            idle=True,
        )

    def _vanish(
        self,
        group: ConsumerGroup,
        instance: Instance,
        state: InstanceState,
        text: str,
        now: int,
        *,
        idle: bool = False,
    ) -> None:
        was_member = instance.member
        cancel_timers(instance)
        self._release(instance)
        instance.epoch += 1
        self._table.woken.add(instance.signal)
        kind: EventKind = "crash" if state == "crashed" else "close"
        if not was_member:
            instance.state = "removed"
            del group.instances[instance.name]
            self._tell(kind, text, now, group, instance)
            return
        instance.state = state
        until = now + instance.config.session_timeout_ms * 1000
        self._arm(group, instance, "session", until)
        kept, left = names(instance.assignment), instance.config.session_timeout_ms
        text = f"{text}; it keeps {kept} for {left} ms"
        held = [list(one) for one in sorted(instance.assignment)]
        self._tell(kind, text, now, group, instance, keeps=held, until_us=until, idle=idle)

    def _session_over(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        text = f"the session of {instance.name} in {group.name} expired"
        self._tell("expire", text, at, group, instance)
        reason = f"the session of {instance.name} expired"
        if not instance.live:
            self._remove(group, instance, reason, at, "expire")
            return
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "expired"
        cancel(instance, "session")
        self.rebalance(group, reason, at, ("expire", instance.name))

    def _remove(
        self, group: ConsumerGroup, instance: Instance, reason: str, now: int, kind: str
    ) -> None:
        was_member = instance.member
        cancel_timers(instance)
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "removed"
        del group.instances[instance.name]
        if was_member:
            self.rebalance(group, reason, now, (kind, instance.name))

    def _arm(self, group: ConsumerGroup, instance: Instance, kind: str, due: int) -> None:
        ended = self._close_idle if kind == "idle close" else self._session_ran_out
        self._table.arm(group, instance, kind, due, lambda at: ended(group, instance, at))

    def _tell(
        self,
        kind: EventKind,
        text: str,
        at: int,
        group: ConsumerGroup,
        instance: Instance,
        **data: Any,
    ) -> None:
        self._table.tell(kind, text, at, group=group.name, instance=instance.name, **data)

    def _session_ran_out(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        if not instance.consuming:
            self._session_over(group, instance, at)

    # -- lookups ---------------------------------------------------------------------------------

    def assignments(self) -> list[GroupAssignments]:
        found = []
        for name in sorted(self._table.groups):
            instances = self._table.groups[name].instances
            live = {
                i: by_topic(instances[i].assignment) for i in sorted(instances) if instances[i].live
            }
            if live:
                found.append(GroupAssignments(name, live))
        return found

    # -- snapshots -------------------------------------------------------------------------------

    def copy_groups(self, now: int) -> list[GroupCopy]:
        """Return independent copies of the groups, with the remaining time of each timer."""
        copies = []
        for group in self._table.groups.values():
            left = {
                name: {kind: timer.due_us - now for kind, timer in instance.timers.items()}
                for name, instance in group.instances.items()
            }
            for name, instance in group.instances.items():
                # Add the timers that start when a consume call ends, because no call is in progress
                # in the copy.
                if instance.consuming and instance.live:
                    left[name] |= self._idle_timers(instance)
            remaining = None if group.timer is None else group.timer.due_us - now
            copies.append(GroupCopy(copied(group, self._table.clock), left, remaining))
        return copies

    def restore_groups(
        self,
        copies: list[GroupCopy],
        now: int,
    ) -> None:
        """Replace the groups with copies, and start their timers with the remaining times."""
        for group in self._table.groups.values():
            self._table.set_timer(group, None)
            for instance in group.instances.values():
                # Mark the old instances as removed, so that calls still waiting on them start no
                # timers.
                instance.state = "removed"
                cancel_timers(instance)
                self._table.woken.add(instance.signal)
        self._table.groups.clear()
        for copy in copies:
            group = self._table.groups[copy.group.name] = copied(copy.group, self._table.clock)
            for name, timers in copy.timers.items():
                for kind, left in timers.items():
                    instance = group.instances[name]
                    if kind == "auto commit":
                        self._commits.plan_tick(group, instance, now + left)
                    else:
                        self._arm(group, instance, kind, now + left)
            for instance in group.instances.values():
                for tp in instance.positions:
                    self._table.log(tp).watchers.add(instance.signal)
            if copy.remaining is not None:
                if group.state == "PreparingRebalance":
                    self._plan_completion(group, now + copy.remaining)
                else:
                    self._commits.plan_forgetting(group, now + copy.remaining)
