"""Team: the users of an organization and their invitations."""
