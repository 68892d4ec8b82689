"""Grants: temporary approvals, which allow further equal calls until they expire or are used up."""
