"""The control API by resource: each module has the endpoints of one."""
