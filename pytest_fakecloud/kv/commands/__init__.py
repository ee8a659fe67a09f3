"""One module per command group; importing this package binds every function to the table."""

from . import expiry as expiry
from . import generic as generic
from . import hash as hash
from . import hash_expiry as hash_expiry
from . import sort as sort
from . import string as string
from . import server as server
from . import transactions as transactions
