"""What must be true after the demo, in the shop and in the gateway's record."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from toolgate.cli.demo.shop import Shop


def check_facts(
    shop: Shop, entries: Sequence[dict[str, Any]], approvals: Sequence[dict[str, Any]]
) -> list[str]:
    """Return what is not as told; nothing when all is well."""
    logged = Counter((entry["action"], entry["status"]) for entry in entries)
    facts = {
        "order 1001 is not refunded by 40.00": shop.refunded("1001") == "40.00",
        "order 1002 is refunded": shop.refunded("1002") == "0.00",
        "customers-2019.csv is still there": not shop.has_file("customers-2019.csv"),
        "customers-2026.csv is gone": shop.has_file("customers-2026.csv"),
        "a mail was sent": shop.mails() == 0,
        "the allowed refund is not recorded once": logged["stripe.refund", "success"] == 1,
        "the blocked refund is not recorded": logged["stripe.refund", "denied"] >= 1,
        "the held deletion is not recorded once": logged["file.delete", "pending"] == 1,
        "the deletion is not recorded once": logged["file.delete", "success"] == 1,
        "the mail nobody granted is not recorded": logged["mail.send", "denied"] >= 1,
        "the approval was not used exactly once": [one["status"] for one in approvals] == ["consumed"],
    }
    return [wrong for wrong, holds in facts.items() if not holds]
