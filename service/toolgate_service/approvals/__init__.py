"""Approvals: the moment a person decides."""
