"""Destinations the service knows by a name, and the URL where their messages go.

Source: the official JavaScript client, which publishes to ``api/llm`` and knows both URLs. Nothing
answers there in a test unless it is told to: ``queue.destinations.answers("api/llm", ...)``, by the
name or by the URL.
"""

from __future__ import annotations

LLM_URL = "https://qstash.upstash.io/llm/v1/chat/completions"
"""What the queue's own ``/llm/v1/chat/completions`` stands in front of as well."""
NAMED = {"api/llm": LLM_URL, "api/email": "https://api.resend.com/emails"}


def named_url(destination: str) -> str | None:
    """Return the URL a name stands for, or None for anything else."""
    return NAMED.get(destination.rstrip("/"))
