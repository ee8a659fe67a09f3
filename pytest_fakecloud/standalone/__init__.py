"""The stand-alone server: control API, console and commands."""
