"""Prepared misbehaviour: faults, the plan that chooses among them, and the answers they make up."""
