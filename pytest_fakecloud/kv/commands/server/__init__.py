"""The server and its connections: ACL, CLIENT, COMMAND, CONFIG, INFO and their kin."""
