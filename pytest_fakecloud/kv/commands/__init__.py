"""One module per command group; importing this package binds every function to the table."""

from . import bitmap as bitmap
from . import expiry as expiry
from . import generic as generic
from . import hash as hash
from . import hash_expiry as hash_expiry
from . import sort as sort
from . import string as string
from . import server as server
from . import transactions as transactions
from . import hyperloglog as hyperloglog
from . import list as list
from . import set as set
from . import set_algebra as set_algebra
from . import sorted_set as sorted_set
from . import geo as geo
from . import connection as connection
from . import pubsub as pubsub
from . import stream as stream
from . import stream_groups as stream_groups
from . import stream_info as stream_info
from . import scripting as scripting
from . import function as function
