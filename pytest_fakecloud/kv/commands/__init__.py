"""One module per command group; importing this package binds every function to the table."""

# ruff: noqa: F401

from . import list, pubsub, set, transactions
from .hash import expiry as hash_expiry
from .hash import fields
from .json import about, change, documents
from .keys import expiry, generic, sort
from .scripting import functions, scripts
from .search import bindings
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
from .sorted_set import algebra, geo, members, pop
from .stream import entries, groups, info, pending
from .string import bitmap, hyperloglog, numbers, values
