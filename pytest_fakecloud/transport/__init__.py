"""Send clients' requests to fakes without sockets, redirect them, and speed up client libraries."""
