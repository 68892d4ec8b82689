"""Whether an event's signature is right, by the reference library of Standard Webhooks (decisions §10)."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")

#: the library's words → ours, which say what to do
_REASONS = {
    "Message timestamp too old": "it was signed more than 5 minutes ago: sent again by somebody, or this clock is ahead",
    "Message timestamp too new": "it was signed more than 5 minutes from now: this clock is behind",
    "Invalid Signature Headers": "webhook-timestamp is no number of seconds",
    "No matching signature found": "no signature fits: the secret is another one, or the body was changed on its way",
}


class SecretError(Exception):
    """The secret is none; the message is one line that names the cure, and not the secret."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a signature.

    Attributes:
        wrong: why it is not right; None when it is.
    """

    wrong: str | None

    @property
    def is_right(self) -> bool:
        """Whether the event comes from who has the secret."""
        return self.wrong is None


class Verifier:
    """Verifies signatures.

    Args:
        secret: `whsec_…`, as the gateway showed it when the webhook was made.

    Raises:
        SecretError: it is none.
    """

    def __init__(self, secret: str) -> None:
        # The extra's own library, loaded by the one command that needs it.
        from standardwebhooks.webhooks import Webhook, WebhookVerificationError

        self._webhook = Webhook(_checked(secret))
        self._failure = WebhookVerificationError

    def judge(self, headers: Mapping[str, str], body: bytes) -> Verdict:
        """Return whether an event is signed with the secret.

        Args:
            headers: the request's, names in lower case.
            body: as it came.
        """
        missing = [name for name in HEADERS if not headers.get(name)]
        if missing:
            return Verdict(f"the header {', '.join(missing)} is missing")
        try:
            self._webhook.verify(body, {name: headers[name] for name in HEADERS})
        except self._failure as error:
            return Verdict(_REASONS.get(str(error), "it cannot be verified"))
        except json.JSONDecodeError:
            # The library reads the body once the signature has proved right.
            return Verdict(None)
        except RecursionError:
            return Verdict("the body is nested too deeply to be read")
        except UnicodeDecodeError:
            return Verdict("the body is not UTF-8, so it is not as it was signed")
        except ValueError:
            return Verdict("webhook-signature has not the form 'v1,BASE64', several separated by spaces")
        return Verdict(None)


def _checked(secret: str) -> str:
    prefix, _, rest = secret.strip().partition("_")
    try:
        # Some leave the padding out.
        key = base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix != "whsec" or not key:
        raise SecretError("the secret is none of a webhook: it has the form 'whsec_BASE64'; copy it again")
    return secret.strip()
