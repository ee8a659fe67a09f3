"""Server and connection commands, such as ACL, CLIENT, COMMAND, CONFIG and INFO."""

from . import acl as acl
from . import client as client
from . import cluster as cluster
from . import info as info
from . import introspection as introspection
from . import server as server
