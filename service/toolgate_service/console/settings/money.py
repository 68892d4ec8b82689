"""Amounts of money, as invoices have them."""

from decimal import Decimal

#: how many digits of an amount stand behind the point, where that is not two; source: the payment provider's currencies
_DIGITS = {
    **dict.fromkeys(("bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv"), 0),
    **dict.fromkeys(("xaf", "xof", "xpf"), 0),
    **dict.fromkeys(("bhd", "jod", "kwd", "omr", "tnd"), 3),
}


def money(amount: int, currency: str) -> str:
    """Return an amount in minor units as people write it: ``2900`` ``eur`` is ``29.00 EUR``."""
    digits = _DIGITS.get(currency.lower(), 2)
    return f"{Decimal(amount).scaleb(-digits):,.{digits}f} {currency.upper()}"
