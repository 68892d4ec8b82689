"""What must be true after the demo, in the shop and in the gateway's record."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from toolgate_cli.demo.shop import Shop


def check_facts(
    shop: Shop,
    entries: Sequence[dict[str, Any]],
    approvals: Sequence[dict[str, Any]],
    *,
    may_deny: bool = False,
) -> list[str]:
    """Return what is not as told; nothing when all is well.

    Args:
        shop: the world.
        entries: the log.
        approvals: what a person was asked.
        may_deny: the person was free to say no.
    """
    logged = Counter((entry["action"], entry["status"]) for entry in entries)
    facts = {
        "order 1001 is not refunded by 40.00": shop.refunded("1001") == "40.00",
        "order 1002 is refunded": shop.refunded("1002") == "0.00",
        "customers-2026.csv is gone": shop.has_file("customers-2026.csv"),
        "a mail was sent": shop.mails() == 0,
        "the allowed refund is not recorded once": logged["stripe.refund", "success"] == 1,
        "the blocked refund is not recorded": logged["stripe.refund", "denied"] >= 1,
        "the held deletion is not recorded once": logged["file.delete", "pending"] == 1,
        "the mail nobody granted is not recorded": logged["mail.send", "denied"] >= 1,
    }
    asked = [one["status"] for one in approvals]
    gone, deleted = not shop.has_file("customers-2019.csv"), logged["file.delete", "success"]
    if may_deny and asked == ["denied"]:
        facts |= {
            "customers-2019.csv is gone, although a person said no": not gone,
            "a deletion is recorded that a person denied": deleted == 0,
            "the denied deletion is not recorded": logged["file.delete", "denied"] == 1,
        }
    else:
        facts |= {
            "customers-2019.csv is still there": gone,
            "the deletion is not recorded once": deleted == 1,
            "the approval was not used exactly once": asked == ["consumed"],
        }
    return [wrong for wrong, holds in facts.items() if not holds]
