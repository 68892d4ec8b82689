"""Whether an event is the provider's: its signature, verified by the provider's own library (decisions §11)."""

from toolgate_service.errors import ApiError

#: seconds that a signed event may be old
TOLERANCE = 300

HEADER = "Stripe-Signature"
#: characters of it: a timestamp and a few signatures take 300
MAX_HEADER = 2_000


class ProviderSignature:
    """Verifies what claims to come from the payment provider.

    Raises:
        ModuleNotFoundError: the extra `billing` is not installed.
    """

    def __init__(self, secret: str) -> None:
        # Here, so that only gateways that bill load it; and not in a request, which it would hold up.
        from stripe import SignatureVerificationError, WebhookSignature

        self._secret = secret
        self._verify = WebhookSignature.verify_header
        self._wrong = SignatureVerificationError

    def require(self, header: str | None) -> str:
        """Return the header, so that no body is read without one.

        Raises:
            ApiError: 400, it is missing or too long to be one.
        """
        if not header or len(header) > MAX_HEADER:
            raise _not_signed()
        return header

    def verify(self, body: bytes, header: str) -> None:
        """Let an event pass that was signed with the secret within the last five minutes.

        Raises:
            ApiError: 400, the signature is wrong or old.
        """
        try:
            self._verify(body.decode("utf-8"), header, self._secret, TOLERANCE)
        except (self._wrong, ValueError, TypeError):
            # The library's messages quote header and body; which of the reasons it was would only help a forger.
            raise _not_signed() from None


def _not_signed() -> ApiError:
    return ApiError(
        400,
        f"The {HEADER} header is missing, wrong or older than {TOLERANCE // 60} minutes; it must sign this "
        "body with the secret of TOOLGATE_PROVIDER_WEBHOOK_SECRET",
    )
