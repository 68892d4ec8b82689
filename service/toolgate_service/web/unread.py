"""What lies at a socket that nobody has read yet."""

import select


def has_bytes(descriptor: int) -> bool:
    """Say whether bytes, an end, or a connection that nobody has accepted lie at a socket; False where nobody can tell."""
    if not hasattr(select, "poll"):
        return False
    # Not `select.select`, which knows no descriptor beyond the first 1024.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
