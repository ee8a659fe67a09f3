"""Lua scripting: the sandboxed runtime for EVAL and FCALL, the script cache and function libraries."""
