"""The management audit."""
