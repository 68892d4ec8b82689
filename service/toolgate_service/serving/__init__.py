"""How the gateway is served: the listening socket, one process or several, and an end that loses no request."""
