"""Conversion of a tool call's arguments to the JSON object that the gateway checks, with secrets hidden."""
