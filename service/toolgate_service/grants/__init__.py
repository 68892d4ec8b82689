"""Grants: temporary approvals that allow further equal calls until they expire or are exhausted."""
