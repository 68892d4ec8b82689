"""Verification of the signatures of the payment provider's events. It uses the provider's own library."""

from toolgate_service.core.errors import ApiError

#: maximum age of a signature in seconds
TOLERANCE = 300

HEADER = "Stripe-Signature"
#: maximum length of the header in characters; a timestamp and a few signatures need about 300
MAX_HEADER = 2_000


class ProviderSignature:
    """Verifier of event signatures: it proves that the payment provider sent an event.

    Raises:
        ModuleNotFoundError: The extra `billing` is not installed.
    """

    def __init__(self, secret: str) -> None:
        # Imported here, because only gateways with billing install the library. The gateway creates this object at
        # start, so that the slow import does not delay the first event.
        from stripe import SignatureVerificationError, WebhookSignature

        self._secret = secret
        self._verify = WebhookSignature.verify_header
        self._wrong = SignatureVerificationError

    def require(self, header: str | None) -> str:
        """Return the signature header. It is checked first, so that no body is read from an unsigned request.

        Raises:
            ApiError: 400 if the header is missing or too long.
        """
        if not header or len(header) > MAX_HEADER:
            raise _not_signed()
        return header

    def verify(self, body: bytes, header: str) -> None:
        """Verify that the body was signed with the secret within the last five minutes.

        Raises:
            ApiError: 400 if the signature is wrong or too old.
        """
        try:
            self._verify(body.decode("utf-8"), header, self._secret, TOLERANCE)
        except (self._wrong, ValueError, TypeError):
            # The library's message is replaced: it quotes header and body, and the exact reason would help an attacker.
            raise _not_signed() from None


def _not_signed() -> ApiError:
    return ApiError(
        400,
        f"The {HEADER} header is missing, wrong or older than {TOLERANCE // 60} minutes; it must sign this "
        "body with the secret of TOOLGATE_PROVIDER_WEBHOOK_SECRET",
    )
