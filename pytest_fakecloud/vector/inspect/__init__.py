"""The data of a vector index, as the console, the control API and explorations read it."""
