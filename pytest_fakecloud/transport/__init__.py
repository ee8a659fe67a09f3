"""Sends requests to fakes without sockets, redirects hard-coded origins, and speeds up client
libraries.
"""
