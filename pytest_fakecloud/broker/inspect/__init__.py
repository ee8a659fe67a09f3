"""The data of a broker, as the console, the control API and explorations read it."""
