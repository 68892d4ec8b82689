"""Server processes of the gateway: listening socket, connections, TLS, workers, draining."""
