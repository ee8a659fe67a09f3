"""The data of a key-value server, as the console, the control API and explorations read it."""
