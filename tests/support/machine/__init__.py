"""A state machine for Hypothesis: does things to the gateway and to the reference, and compares every answer."""
