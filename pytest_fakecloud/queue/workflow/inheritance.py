"""Settings that messages of a workflow run inherit from its trigger (``WF_TriggerOnConfig``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..model import MESSAGE, Message, PublishSettings, first
from .model import SDK_VERSION, call_type_of, features_of, is_step

if TYPE_CHECKING:
    from ..engine.engine import Engine

_INHERITED = ("retry_delay", "failure_callback", "flow")


def inherit_settings(engine: Engine, message: Message, trigger: PublishSettings) -> None:
    """Complete the settings of a message with the settings of its run's trigger."""
    own = message.settings
    if "wf_triggeronconfig" not in features_of(own):
        return
    skipped = {name.lower() for name, _ in own.forward}
    if not is_step(message):
        # Omit the version header, with which a client would mistake the callback for a step.
        skipped.add(SDK_VERSION.lower())
    changes: dict[str, Any] = {
        "forward": own.forward
        + [pair for pair in trigger.forward if pair[0].lower() not in skipped],
        "labels": own.labels or trigger.labels,
    }
    for name in _INHERITED:
        if getattr(own, name) is None:
            changes[name] = getattr(trigger, name)
    if own.failure_callback is None:
        changes["failure_callback_headers"] = trigger.failure_callback_headers
    if call_type_of(message) == "failurecall":
        # Remove the failure callback's own failure callback, so that its failure does not cause
        # another one.
        changes["failure_callback"], changes["failure_callback_headers"] = None, []
    if own.retries is None or _has_default_retries(engine, message):
        changes["retries"] = trigger.retries
        message.max_retries = (
            engine.settings.retries if trigger.retries is None else trigger.retries
        )
    message.settings = replace(own, **changes)
    message.retry_delay = message.settings.retry_delay


def _has_default_retries(engine: Engine, message: Message) -> bool:
    """Return whether a callback's number of retries is only the default."""
    source = engine.messages.get(message.source_id or "")
    if message.kind == MESSAGE or source is None:
        return False
    nested = (
        source.settings.callback_headers
        if message.kind == "callback"
        else source.settings.failure_callback_headers
    )
    return first(nested, "Upstash-Retries") is None
