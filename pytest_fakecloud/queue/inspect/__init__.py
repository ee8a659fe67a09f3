"""The data of a queue, as the console, the control API and explorations read it."""
