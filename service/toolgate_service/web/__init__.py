"""How the gateway speaks HTTP: strict bodies in, exact JSON out, one shape for every error."""
