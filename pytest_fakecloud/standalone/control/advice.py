"""What to do about a failed call or delivery, by the class of its error, and about a violation.

An answer that says all itself has no advice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ...core.violations import Violation
from . import shapes

Place = Literal["connect", "commands", "destinations", "faults", "flow-control"]
"""Where advice leads: a page of the console, or a list of the fake."""


class Advice(NamedTuple):
    """What to do, and where; the place is None if it is not in the console.

    ``code`` follows the text: a command or an address.
    """

    text: str
    place: Place | None = None
    code: str = ""


_FAULT = Advice(
    "An injected fault answered. The tab Faults of the fake has those that are left.", "faults"
)
_NO_TOKEN = Advice("The request has no token. Copy that of this fake from Connect.", "connect")
_WRONG_TOKEN = Advice(
    "No fake has the token or password that was sent. Copy that of this fake from Connect.",
    "connect",
)
_NO_PATH = Advice(
    "The fake has no such path. Compare it, and the base URL of the client, with Connect.",
    "connect",
)
_HANDLER_FAILED = Advice(
    "The handler failed: the log of your application says why. Mend it, then send it again."
)
_REJECTED = Advice(
    "The handler did not accept the signature or the credentials. It needs the signing keys from "
    "Connect.",
    "connect",
)
_CODES: Mapping[str, Advice] = {
    "WRONGTYPE": Advice("The key holds a value of another type. Open the key, and its history."),
    "WRONGPASS": _WRONG_TOKEN,
    "NOAUTH": Advice("The client sent no password. Copy REDIS_URL from Connect.", "connect"),
    "NOPERM": Advice("The user or the read-only token may not run this command."),
    "NOSCRIPT": Advice(
        "The script was not loaded into this fake, or it was reset. Use EVAL, or load it first."
    ),
    "NOGROUP": Advice(
        "Create the consumer group first: XGROUP CREATE with MKSTREAM makes the stream as well."
    ),
    "EXECABORT": Advice(
        "A command of the transaction was rejected before EXEC. The rows before say why."
    ),
    "CROSSSLOT": Advice("The keys are in different slots. Give them one part in braces: {user:1}."),
    "OOM": Advice("The limit of the memory is reached. Delete keys, or set an eviction policy."),
    "READONLY": Advice(
        "This client may only read: it has the read-only token, or talks to a replica."
    ),
}
"""By the code at the beginning of an error of Redis."""
_ERRORS: tuple[tuple[str, Advice], ...] = (
    (
        "wrong number of arguments",
        Advice(
            "{operation} has too few or too many arguments. The command box shows which it takes.",
            "commands",
        ),
    ),
    (
        "unknown (sub)?command|Command is not available",
        Advice("The fake has no such command. Check its spelling, and whether the service has it."),
    ),
    (
        "syntax error|unsupported option|unknown option",
        Advice(
            "An option of {operation} is misspelled, lacks its value, or excludes another one. The "
            "command box shows its syntax.",
            "commands",
        ),
    ),
    (
        "not an integer|not a valid float|is not a float",
        Advice(
            "A number was expected: look at the arguments, and at the value that the key holds."
        ),
    ),
)
"""Errors of Redis with the code ERR, by a part of their message."""
_MESSAGES: tuple[tuple[str, Advice], ...] = (
    (
        "Invalid vector dimension",
        Advice(
            "Send as many numbers as the index has dimensions. For an embedding model with another "
            "number of them, start the server with --vector dimension=N."
        ),
    ),
    (
        "Invalid filter",
        Advice(
            "Correct the filter at the position that the answer names. A filter is like: "
            "year >= 1990 AND genre = 'drama'."
        ),
    ),
    (
        "Embedding data for this index is not allowed",
        Advice(
            "The index has no embedding model. Send vectors instead of text, or start the server with "
            "--vector embedding=true."
        ),
    ),
    (
        "This index requires (dense|sparse|dense and sparse) vectors",
        Advice(
            "Send vectors of the kind of the index, or start the server with an index of another kind: "
            "--vector kind=dense, sparse or hybrid."
        ),
    ),
    (
        "topic .* not found",
        Advice(
            "Publish to a URL with http:// or https://, or to the name of a URL group: the queue has "
            "none of this name."
        ),
    ),
)
"""Errors of services without codes, by the beginning of their message."""
_STATUSES: Mapping[int, Advice] = {
    404: Advice("What the path names does not exist, or no longer does."),
    405: Advice("The path exists, but not with this method."),
    413: Advice("The request is larger than the limit of the fake."),
    429: Advice("A limit was reached: one of the settings, or an injected fault."),
}
"""By the status of a call to a fake."""
_NO_ANSWER: Mapping[str, Advice] = {
    "ConnectionRefusedError": Advice(
        "Start your application, or forward the address to where it listens: Destinations of the queue.",
        "destinations",
    ),
    "UnstubbedDestinationError": Advice(
        "Forward the address to your application, or let the queue answer it: Destinations has both "
        "forms.",
        "destinations",
    ),
    "DestinationTimeoutError": Advice(
        "Your application took longer than the timeout of the message."
    ),
    "TimeoutError": Advice("Your application took longer than the timeout of the message."),
    "gaierror": Advice(
        "Check the name of the server in the URL, or forward the address: Destinations.",
        "destinations",
    ),
    **dict.fromkeys(
        ("RemoteDisconnected", "ConnectionResetError", "BrokenPipeError", "IncompleteRead"),
        Advice(
            "Your application closed the connection. Its log says whether it has crashed or restarted."
        ),
    ),
    **dict.fromkeys(
        ("SSLError", "SSLCertVerificationError", "SSLZeroReturnError"),
        Advice("Check whether the address has https, and whether its certificate is valid."),
    ),
}
"""By the name of the exception of a delivery without an answer."""
_ANSWERS: Mapping[int, Advice] = {
    400: Advice("The handler rejected the message. Edit it, and send it again."),
    401: _REJECTED,
    403: _REJECTED,
    404: Advice(
        "The application has no such path. Compare the URL of the message with its routes."
    ),
    405: Advice(
        "The application does not accept this method at the path. Compare it with its routes."
    ),
    413: Advice("The body is too large for the application."),
    422: Advice(
        "The handler rejected the body. Compare it with what it expects, edit it, and send it again."
    ),
    429: Advice(
        "The application limits its requests. Flow control makes the queue deliver more slowly.",
        "flow-control",
    ),
}
"""By the status with which a destination answered."""
_VIOLATIONS: Mapping[str, tuple[Advice, ...]] = {
    "unstubbed": (
        Advice(
            "The queue delivers to loopback addresses only. Forward the address or answer it below, or "
            "do so at each start of the server:"
        ),
        Advice(
            "Forward it:", code="pytest-fakecloud serve --forward {origin}=http://127.0.0.1:3000"
        ),
        Advice(
            'Answer it from a state file, under "destinations":',
            code="pytest-fakecloud serve --load state.json",
        ),
    ),
    "unrouted": (
        Advice(
            "Your application called an address that this fake does not have. Compare method and path "
            "with the documentation of the service."
        ),
        Advice("Check that your application uses the address and token of this fake:", "connect"),
    ),
    "rejected_step": (
        Advice(
            "The queue rejected a step of a workflow run, for example because the run has ended. "
            "Workflow clients ignore this error, so the run does not continue."
        ),
    ),
    "no_workflow": (
        Advice(
            "Your application triggered a workflow at an address that serves no workflow, so the run "
            "failed."
        ),
        Advice(
            "Trigger the address at which your application serves the workflow, instead of",
            code="{url}",
        ),
    ),
    "bug": (Advice("This is a bug of pytest-fakecloud. Please report it with the text below."),),
}
"""By the kind of a violation. In the code, ``url`` is the address that it names."""


_EXPECTED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "HELLO|COMMAND|COMMAND DOCS|CLIENT (SETINFO|SETNAME|MAINT_NOTIFICATIONS|TRACKING|NO-TOUCH)",
        ("ERR", "NOPROTO"),
        "The client asks for a feature and ignores this error.",
    ),
    (
        "XGROUP CREATE",
        ("BUSYGROUP",),
        "The group exists already, which a client that creates it at each start expects.",
    ),
    (".*", ("MOVED", "ASK", "TRYAGAIN"), "The client of a cluster follows the slot to its node."),
)
"""Errors that are ordinary control flow of clients: of these commands, with one of these codes."""


def expected_of(row: shapes.RowData, error: str) -> str:
    """Return why the error of a call is ordinary control flow of its client; empty for a failure."""
    if not row["rules"]["is_received"] or row["faults"]:
        return ""
    is_lookup = row["request"] is not None and row["request"]["line"].startswith("GET ")
    if row["status"] == 404 and is_lookup and not row["operation"].startswith(_METHODS):
        return "The client looked up something that does not exist."
    code = error.partition(" ")[0]
    reasons = (
        reason
        for operation, codes, reason in _EXPECTED
        if code in codes and re.fullmatch(operation, row["operation"])
    )
    return next(reasons, "")


def advice_of(row: shapes.RowData, error: str) -> Advice | None:
    """Return what to do about a failed row, None if there is nothing to say.

    ``error`` is the error in the answer to a call, without the status.
    """
    if row["faults"]:
        return _FAULT
    if row["rules"]["is_sent"] and not row["ok"]:
        return _of_delivery(row["status"], row["data"].get("error"))
    if not row["rules"]["is_received"]:
        return None
    if row["status"] == 401:
        return _of_token(row)
    code, _, message = (error or _error_of_item(row)).partition(" ")
    if code == "ERR":
        advice = next((advice for part, advice in _ERRORS if re.search(part, message)), None)
        return advice and advice._replace(text=advice.text.format(operation=row["operation"]))
    if code in _CODES:
        return _CODES[code]
    if row["status"] == 404 and row["operation"].startswith(_METHODS):
        return _NO_PATH
    return advice_on_message(error) or _STATUSES.get(row["status"] or 0)


def advice_on_message(error: str) -> Advice | None:
    """Return what to do about an error of a service without codes, None if it is not a known one."""
    return next((advice for start, advice in _MESSAGES if re.match(start, error)), None)


def advice_of_violation(violation: Violation, origin: str) -> list[Advice]:
    """Return what to do about a violation; ``origin`` is that of the address that it names."""
    url = violation.facts.get("url", "")
    return [
        advice._replace(code=advice.code.format(url=url, origin=origin))
        for advice in _VIOLATIONS.get(violation.kind, ())
    ]


def place_of(advice: Advice, fake: str) -> shapes.AdvicePlace | None:
    """Return where in the console the advice about something of a fake is followed."""
    if advice.place is None:
        return None
    return {"place": advice.place, "fake": None if advice.place == "connect" else fake}


def _error_of_item(row: shapes.RowData) -> str:
    """Return the first error in the answer to a pipeline, a transaction or a batch."""
    answer: Any = None if row["response"] is None else row["response"].get("decoded")
    items = answer.get("responses") if isinstance(answer, dict) else answer
    errors = (
        item["error"]
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and isinstance(item.get("error"), str)
    )
    return next(errors, "")


_METHODS = ("GET ", "POST ", "PUT ", "PATCH ", "DELETE ")
"""The operation of a call to a path that a fake does not have is its method and its path."""


def _of_delivery(status: int | None, error: str | None) -> Advice | None:
    if status is None:
        return _NO_ANSWER.get(error or "")
    return _HANDLER_FAILED if status >= 500 else _ANSWERS.get(status)


def _of_token(row: shapes.RowData) -> Advice:
    """Return what is wrong with the token of a rejected call; it can be in a header or in the path.

    A call over the protocol of Redis, which has no headers, has sent a password.
    """
    if owner := row["data"].get("token_of"):
        return Advice(f"The token belongs to {owner}: each fake has its own.", "connect")
    request = row["request"]
    names = [name.lower() for name, _ in request["headers"]] if request else []
    has_token = not request or not names or "authorization" in names or "_token=" in request["line"]
    return _WRONG_TOKEN if has_token else _NO_TOKEN
