"""Requests without sockets, redirected origins, HTTPS, and cheaper client libraries."""
