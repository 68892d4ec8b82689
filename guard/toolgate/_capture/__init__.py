"""Capture: a call's arguments as the context the gateway is asked about, secrets hidden."""
