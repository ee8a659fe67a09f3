"""One module per command group; importing this package binds every function to the table."""

# ruff: noqa: F401

from . import list, pubsub, transactions
from .hash import hash as fields
from .hash import hash_expiry as hash_expiry
from .json import json as documents
from .json import json_about as about
from .json import json_change as change
from .keys import expiry, generic, sort
from .scripting import function as functions
from .scripting import scripting as scripts
from .server import (
    acl,
    client,
    configuration,
    connection,
    introspection,
    process,
    server,
    statistics,
)
from .set import set as set_members
from .sorted_set import (
    geo,
)
from .sorted_set import (
    set_algebra as algebra,
)
from .sorted_set import (
    sorted_set as members,
)
from .sorted_set import (
    sorted_set_pop as pop,
)
from .stream import (
    stream as entries,
)
from .stream import (
    stream_groups as groups,
)
from .stream import (
    stream_info as info,
)
from .stream import (
    stream_pending as pending,
)
from .string import (
    bitmap,
    hyperloglog,
)
from .string import (
    string as values,
)
from .string import (
    string_number as numbers,
)
