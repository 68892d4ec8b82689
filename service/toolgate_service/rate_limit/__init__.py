"""Rate limits per minute: for organizations and users, and for client addresses with failed authentications."""
