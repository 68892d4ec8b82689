"""Server processes of the gateway: listening socket, connections, TLS, worker processes and graceful shutdown."""
