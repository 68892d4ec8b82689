"""Grants: what an approver allows for a while."""
