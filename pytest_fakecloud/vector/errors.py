"""Errors of a vector index, with the service's own messages where they are known.

The messages of ``invalid_dimension``, ``no_embedding_model``, ``namespace_missing``, the beginning of
``vectors_required``, ``UNAUTHORIZED`` and of the two "only one of" errors are the service's own;
clients and test suites compare them. All other messages are decided here, with status 400
(malformed) or 422 (well-formed, but invalid for this index).
"""

from __future__ import annotations

from ..core.errors import ServiceError


class VectorError(ServiceError):
    """An error response ``{"error": text, "status": code}``."""

    __module__ = "pytest_fakecloud"


UNAUTHORIZED = "Unauthorized: Invalid auth token"
READ_ONLY = "Unauthorized: This command needs the token that may write, not the read-only token"
NO_SEARCH = "Upstash Search is not faked, only Upstash Vector"
DELETE_WHAT = "Only and only one of the ids, prefix, or filter must be provided."
FETCH_WHAT = "Only one of ids or prefix must be provided."


def bad_request(message: str) -> VectorError:
    return VectorError(400, message)


def unprocessable(message: str) -> VectorError:
    """The error for a well-formed request that is invalid for this index."""
    return VectorError(422, message)


def invalid_dimension(actual: int, expected: int) -> VectorError:
    return unprocessable(f"Invalid vector dimension: {actual}, expected: {expected}")


def vectors_required(kinds: str, why: str) -> VectorError:
    """The error for vectors that do not suit the kind of the index; ``why`` is decided here."""
    return unprocessable(f"This index requires {kinds} vectors: {why}.")


def no_embedding_model() -> VectorError:
    return unprocessable(
        "Embedding data for this index is not allowed. "
        "The index must be created with an embedding model to use it."
    )


def namespace_missing(namespace: str, index: str) -> VectorError:
    """The error for deleting or renaming a namespace that does not exist."""
    return VectorError(404, f"Namespace {namespace} for the index {index} does not exist")


def invalid_filter(line: int, column: int, what: str) -> VectorError:
    """The error for a filter with a syntax error; columns are counted from 0."""
    return bad_request(f"Invalid filter. At line {line}:{column} {what}")


def cursor_missing(uuid: str) -> VectorError:
    """The error for a resumable query that never existed, was closed, or was idle too long."""
    return VectorError(
        404,
        f"Resumable query {uuid[:80]!r} does not exist: it was never started, was ended, "
        "or was idle for longer than its maxIdle",
    )


def check_limit(what: str, count: int, limit: int | None, unit: str = "") -> None:
    """Raise ``VectorError`` 400 if a number exceeds a limit, which can be None."""
    if limit is not None and count > limit:
        raise limit_exceeded(what, count, limit, f" {unit}" if unit else "")


def limit_exceeded(what: str, count: int, limit: int, unit: str) -> VectorError:
    return bad_request(f"{what} limit exceeded: {count}{unit}, maximum: {limit}{unit}")


def quota_exceeded(what: str, limit: int) -> VectorError:
    return VectorError(429, f"Exceeded daily {what} limit: {limit}")
