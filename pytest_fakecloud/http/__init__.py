"""The HTTP server of every fake: sockets, connections, parser, request pipeline, routes."""
