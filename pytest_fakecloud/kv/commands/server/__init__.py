"""Server and connection commands, such as ACL, CLIENT, COMMAND, CONFIG and INFO."""
