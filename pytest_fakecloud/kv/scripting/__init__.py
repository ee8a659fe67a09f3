"""Lua scripting: the host of EVAL and FCALL, its sandbox, and the libraries of scripts."""
