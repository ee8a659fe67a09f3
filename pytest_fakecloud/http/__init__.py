"""The HTTP server of every fake: sockets and connections, the parser, the pipeline, routes, readers."""
