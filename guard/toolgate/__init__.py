"""Toolgate's SDK."""
