"""Capture: converts the arguments of a call to the context that the gateway checks, with secrets hidden."""
