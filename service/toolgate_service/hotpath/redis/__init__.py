"""Rate windows of several gateways: the database hands requests out in blocks, Redis holds those not yet used."""
