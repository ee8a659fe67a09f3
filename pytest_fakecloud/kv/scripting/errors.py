"""Errors and limits of scripts; messages are those of Redis 7.0 (observed) or the vendor's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Template

LEVELS = 100
"""Maximum nesting depth of a script's reply that becomes JSON or a Python value (decided here)."""
PORT_LEVELS = 7995
"""Maximum nesting depth of a script's reply over the Redis protocol, as measured on Redis 7.0.15.

The unit is a slot of Lua's stack: an array takes one, a map or a set three, the key of a map four.
"""


class ScriptLimits(NamedTuple):
    """The limits of one script (decided here; the service publishes none).

    ``instructions`` is the maximum number of Lua instructions; a coroutine counts as 1,000, a
    command as 100. ``seconds`` is the maximum processor time, because some work is not counted in
    instructions. ``memory`` is the maximum number of bytes. ``seconds_to_load`` is the maximum
    processor time of compiling a script and of loading a library, which Redis gives 500 ms, too.
    """

    instructions: int = 50_000_000
    seconds: float = 2.0
    memory: int = 64 * 2**20
    seconds_to_load: float = 0.5


class HostLost(Exception):
    """Raised if Lua runs out of memory outside a script. The runtime is unusable afterwards."""


@dataclass(eq=False)
class ScriptFailure(Exception):
    """An error raised by a script.

    ``text`` is the message including its error code, such as ``ERR``. ``source`` and ``line`` say
    where the script raised the error. ``counted`` is true if the statistics already include the
    error, because it came from a command that the script called. ``too_long`` is true if the script
    exceeded its instruction or time limit.
    """

    text: bytes
    source: bytes | None = None
    line: int | None = None
    counted: bool = False
    too_long: bool = False


# -- messages --------------------------------------------------------------------------------------

NO_SCRIPT = b"NOSCRIPT No matching script. Please use EVAL."
NOT_LOCAL = b"ERR Script attempted to access a non local key in a cluster node"
CLUSTER_DOWN = b"ERR Script attempted to execute a command while the cluster is down"
CROSSSLOT = b"ERR Script attempted to access keys that do not hash to the same slot"
NO_CLUSTER = b"ERR Can not run script on cluster, 'no-cluster' flag is set."
NOT_BUSY = b"NOTBUSY No scripts in execution right now."
UNKILLABLE = (
    b"UNKILLABLE Sorry the script already executed write commands against the dataset. You can "
    b"either wait the script termination or kill the server in a hard way using the SHUTDOWN "
    b"NOSAVE command."
)
KILLED = b"ERR Script killed by user with SCRIPT KILL..."
KEYS_NEGATIVE = b"ERR Number of keys can't be negative"
KEYS_BAD = b"ERR Bad number of keys provided"
WRITE_FLAG_IN_RO = b"ERR Can not execute a script with write flag using *_ro command."
OUT_OF_MEMORY = b"ERR not enough memory for the script"
SCRIPT_FLUSH_MODE = b"ERR SCRIPT FLUSH only support SYNC|ASYNC option"
SCRIPT_DEBUG_MODE = b"ERR Use SCRIPT DEBUG YES/SYNC/NO"

busy = Template(
    "BUSY Redis is busy running a script. You can only call <kind> KILL or SHUTDOWN NOSAVE."
)
"""For a command while a script has run longer than ``busy-reply-threshold``."""

# -- shebang ---------------------------------------------------------------------------------------

INVALID_SHEBANG = b"ERR Invalid script shebang"
INVALID_ENGINE = b"ERR Invalid engine in script shebang"

unexpected_engine = Template("ERR Unexpected engine in script shebang: <engine>")
unexpected_flag = Template("ERR Unexpected flag in script shebang: <flag>")
unknown_shebang_option = Template("ERR Unknown lua shebang option: <option>")
compile_error = Template("ERR Error compiling script (new function): <message>")


# -- commands called from scripts ------------------------------------------------------------------

UNKNOWN_COMMAND = b"ERR Unknown Redis command called from script"
WRONG_ARITY = b"ERR Wrong number of args calling Redis command from script"
NOT_FROM_SCRIPT = b"ERR This Redis command is not allowed from script"
READ_ONLY = b"ERR Write commands are not allowed from read-only scripts."
READ_ONLY_VENDOR = b"READONLY Write commands are not allowed from read-only scripts."
NO_PERMISSION = {
    "command": b"ERR The user executing the script can't run this command or subcommand",
    "key": b"ERR The user executing the script can't access at least one of the keys mentioned in "
    b"the command arguments",
    "channel": b"ERR The user executing the script can't access at least one of the channels "
    b"mentioned in the command arguments",
}
waits_in_script = Template("ERR <command> command is not allowed with BLOCK option from scripts")
INVALID_FOR_ACL_CHECK = b"ERR Invalid command passed to redis.acl_check_cmd()"
FLUSH_WITH_KEY_LOCKING = (  # Decided here, because the vendor publishes no message.
    b"ERR FLUSHDB and FLUSHALL are not allowed in Lua scripts when 'allow-key-locking' flag is set"
)

dynamic_key = Template(
    "ERR Dynamic keys are not allowed in Lua scripts when 'allow-key-locking' flag is set. "
    "Key was: <key>"
)
"""From the vendor's documentation."""


# -- functions -------------------------------------------------------------------------------------

FUNCTION_NOT_FOUND = b"ERR Function not found"
LIBRARY_NOT_FOUND = b"ERR Library not found"
NO_FUNCTIONS = b"ERR No functions registered"
NO_METADATA = b"ERR Missing library metadata"
INVALID_METADATA = b"ERR Invalid library metadata"
NO_LIBRARY_NAME = b"ERR Library name was not given"
NAME_TWICE = b"ERR Invalid metadata value, name argument was given multiple times"
BAD_LIBRARY_NAME = (
    b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least "
    b"one character long"
)
FUNCTION_FLUSH_MODE = b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option"
NO_LIBRARY_ARGUMENT = b"ERR library name argument was not given"
NOT_A_FUNCTION = b"ERR given type is not a function"
BAD_LIBRARIES = b"ERR Failed loading library payload"
BAD_POLICY = b"ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
LOAD_TIMEOUT = b"ERR FUNCTION LOAD timeout"

bad_metadata = Template("ERR Invalid metadata value given: <word>")
engine_not_found = Template("ERR Engine '<engine>' not found")
library_exists = Template("ERR Library '<name>' already exists")
library_collides = Template("ERR Library <name> already exists")
"""For FUNCTION RESTORE."""
function_exists = Template("ERR Function <name> already exists")
unknown_load_option = Template("ERR Unknown option given: <option>")
unknown_list_argument = Template("ERR Unknown argument <argument>")
library_compile_error = Template("ERR Error compiling function: <message>")
registration_error = Template("ERR Error registering functions: <message>")
