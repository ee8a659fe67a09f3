"""The reasons why an attempt got no response, in words for readers of any language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, str] = {
    "UnstubbedDestinationError": "no destination answers this address, so nothing was sent",
    "ConnectionRefusedError": "connection refused: no server listens at this address",
    "RemoteDisconnected": "the server closed the connection without an answer",
    "ConnectionResetError": "the server reset the connection",
    "BrokenPipeError": "the server closed the connection",
    "ConnectionAbortedError": "the connection was aborted",
    "IncompleteRead": "the connection broke in the middle of the answer",
    "BadStatusLine": "the answer is not HTTP",
    "LineTooLong": "the answer is not HTTP",
    "UnknownProtocol": "the answer is not HTTP",
    "SSLError": "the TLS connection failed",
    "SSLCertVerificationError": "the certificate of the server was not accepted",
    "SSLZeroReturnError": "the server closed the TLS connection",
    "DestinationTimeoutError": "no answer within the timeout",
    "TimeoutError": "no answer within the timeout",
    "gaierror": "the name of the server was not found",
}
"""By the name of the exception's class. Others are raised by a destination that is Python code."""


def failure_words(name: str) -> str | None:
    """Return the words for an exception of this class; None for one of a destination's code."""
    return _WORDS.get(name)


def failure_of(attempt: Any) -> str | None:
    """Return why an attempt got no response, or raised an exception; None if it did not."""
    if attempt.exception is None:
        return None
    return failure_words(type(attempt.exception).__name__) or repr(attempt.exception)
