"""Keys that this process admitted lately, each from one address.

The fast path decides about a small request with a single statement that needs the body's agent and action. It may parse
the body first only for a client that was admitted a moment ago; for every other request the key is looked up, its
address checked and its rate counted from the headers alone. What is remembered never admits a request: every request is
looked up.
"""

from typing import TypeAlias

MAX_KEYS = 10_000

#: digest of a key, and the client's address
Client: TypeAlias = tuple[str, str | None]


class RecentKeys:
    """Clients whose last request was admitted: a valid key, an allowed address, a rate within the limit."""

    def __init__(self) -> None:
        self._clients: dict[Client, None] = {}

    def __contains__(self, client: Client) -> bool:
        return client in self._clients

    def add(self, client: Client) -> None:
        """Remember a client that was admitted."""
        if client not in self._clients:
            if len(self._clients) >= MAX_KEYS:
                del self._clients[next(iter(self._clients))]
            self._clients[client] = None

    def discard(self, client: Client) -> None:
        """Forget a client that was not admitted."""
        self._clients.pop(client, None)
