"""Team: the users of an organization and the invitations to join it."""
