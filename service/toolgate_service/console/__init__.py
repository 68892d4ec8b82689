"""Web console at ``/console`` for approvers and administrators.

The pages contain no business rules of their own: they call the same service functions as the API.
"""
