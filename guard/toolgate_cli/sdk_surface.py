"""The SDK surface, as commands use it: what an agent's own settings are good for."""

from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode

from toolgate._capture.jsontext import dumps
from toolgate._http.messages import Request, Response, TransportError
from toolgate._http.transport import HttpSender
from toolgate.errors import ConfigurationError
from toolgate.settings import Settings
from toolgate_cli.answers import ManagementError, read_answer
from toolgate_cli.patience import Patience
from toolgate_cli.visible import visible


class SdkSurface:
    """A conversation under an API key, in a `with` block.

    Args:
        settings: where the gateway is, and the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wire = HttpSender(settings.url, settings.http, network=settings.network)
        self._patience = Patience()

    def check(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask what a check would answer, without anything coming of it.

        Raises:
            ManagementError: the gateway refused, did not answer, or decided nothing.
        """
        path = "/sdk/check"
        body = dumps(question | {"dry_run": True}).encode("utf-8", "surrogatepass")
        answer = read_answer(self.send("POST", path, body), "POST", path)
        if not isinstance(answer, dict) or not (
            isinstance(answer.get("allowed"), bool) and isinstance(answer.get("requires_approval"), bool)
        ):
            raise ManagementError(
                f"what answers at {self._settings.url!r} decides nothing; is it a Toolgate gateway?"
            )
        if answer["allowed"] and (answer["requires_approval"] or answer.get("reason") is not None):
            raise ManagementError(f"what answers at {self._settings.url!r} contradicts itself")
        return answer

    def permissions(self, agent_id: str) -> Response:
        """Ask what an agent may do; the answer is as it came.

        Raises:
            ManagementError: the gateway did not answer.
        """
        return self.send("GET", f"/sdk/permissions?{urlencode({'agent_id': agent_id}, errors='replace')}")

    def send(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send a request and return its answer as it came.

        Raises:
            ManagementError: the gateway did not answer.
        """
        headers = {"X-API-Key": self._settings.api_key, "Content-Type": "application/json"}
        request = Request(method, self._settings.url + path, headers, body)
        try:
            while True:
                answer = self._wire.send(request, self._settings.timeout)
                if not self._patience.waited(answer):
                    return answer
        except TransportError as error:
            raise ManagementError(
                f"the gateway at {self._settings.url!r} does not answer: {visible(error)}", unanswered=True
            ) from error
        except ConfigurationError as error:
            raise ManagementError(visible(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()


def refuses_key(error: ManagementError) -> bool:
    """Say whether it was the key that was refused."""
    return error.status == HTTPStatus.UNAUTHORIZED
