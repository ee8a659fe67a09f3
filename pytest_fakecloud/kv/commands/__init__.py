"""Implementations of the commands, in one module or folder per command group.

Importing this package gives each command of the table its function.
"""

from . import array as array
from . import bitmap as bitmap
from . import geo as geo
from . import hash as hash
from . import hyperloglog as hyperloglog
from . import json as json
from . import keys as keys
from . import list as list
from . import pubsub as pubsub
from . import scripting as scripting
from . import search as search
from . import server as server
from . import set as set
from . import sorted_set as sorted_set
from . import stream as stream
from . import string as string
from . import transactions as transactions
from . import vector as vector
from . import vector_set as vector_set
