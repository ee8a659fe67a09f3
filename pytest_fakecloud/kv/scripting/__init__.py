"""Lua scripting: the runtime for EVAL and FCALL, its sandbox, and the scripts and function
libraries.
"""
