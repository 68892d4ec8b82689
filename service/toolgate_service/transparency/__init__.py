"""Transparency log: signed Merkle tree of all decisions, log entries, approvals, audit events and policy revisions."""
