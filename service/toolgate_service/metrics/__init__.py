"""What the gateway does, in figures for Prometheus: counted in place, named and read only when they are asked for."""
