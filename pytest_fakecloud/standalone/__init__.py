"""The stand-alone server: control API, console, commands and remote clouds."""
