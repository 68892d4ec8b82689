"""Waiting as long as a gateway tells that is asked too often, and no longer than somebody bears."""

import time
from datetime import UTC, datetime
from http import HTTPStatus

import typer

from toolgate._http.messages import Response
from toolgate._http.retry import retry_after

#: seconds that a command waits in a row
LONGEST = 60.0

#: a gateway that asks for no pause at all is not to be hammered
_SHORTEST = 1.0


class Patience:
    """What is left of the seconds that a command waits."""

    def __init__(self) -> None:
        self._left = LONGEST

    def waited(self, answer: Response) -> bool:
        """Wait as an answer asks, and say whether that was done: then the same is to be sent again."""
        if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
            self._left = LONGEST
            return False
        asked = retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
        if asked is None:
            return False
        seconds = max(_SHORTEST, asked)
        if seconds > self._left:
            return False
        self._left -= seconds
        typer.echo(f"toolgate: the gateway is asked too often; waiting {seconds:.0f} s, as it says", err=True)
        time.sleep(seconds)
        return True
