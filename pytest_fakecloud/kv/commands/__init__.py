"""One module per command group; importing this package binds every function to the table."""

from . import string as string
