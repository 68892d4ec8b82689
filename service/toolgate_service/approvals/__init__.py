"""Approval requests: tool calls that wait for the decision of an approver."""
