"""Destinations that the service knows by name, and their URLs.

Source: the official JavaScript client, which publishes to ``api/llm`` and contains both URLs. In a
test, they need a handler like any other destination, added by name or by URL:
``queue.destinations.answers("api/llm", ...)``.
"""

from __future__ import annotations

LLM_URL = "https://qstash.upstash.io/llm/v1/chat/completions"
"""The destination of ``api/llm``, and of the queue's own endpoint ``/llm/v1/chat/completions``."""
NAMED = {"api/llm": LLM_URL, "api/email": "https://api.resend.com/emails"}


def named_url(destination: str) -> str | None:
    """Return the URL of a named destination, or None."""
    return NAMED.get(destination.rstrip("/"))
