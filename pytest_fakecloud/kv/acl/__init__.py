"""ACL users: passwords, rules and permission checks."""
