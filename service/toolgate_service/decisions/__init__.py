"""Decision log: one record for each check that the gateway has decided."""
