"""The shop's tools. Each is an ordinary function that really does what it says, and each is guarded in one line."""

import os
import sqlite3
from decimal import Decimal
from pathlib import Path

from toolgate import guarded


def folder() -> Path:
    """Return the folder with `shop.db`, `files/` and `outbox/`, as `SHOP_FOLDER` names it."""
    return Path(os.environ["SHOP_FOLDER"])


@guarded("stripe.refund")
def refund(order_id: str, amount: float) -> str:
    """Refund an amount of an order to the customer."""
    database = sqlite3.connect(folder() / "shop.db")
    with database:
        row = database.execute("SELECT refunded FROM orders WHERE id = ?", (order_id,)).fetchone()
        if row is None:
            raise LookupError(f"there is no order {order_id!r}")
        refunded = Decimal(row[0]) + Decimal(str(amount))
        database.execute("UPDATE orders SET refunded = ? WHERE id = ?", (f"{refunded:.2f}", order_id))
    database.close()
    return f"Refunded {amount:.2f} of order {order_id}."


@guarded("file.delete", on_hold="wait", hold_timeout=300)
def delete_file(name: str) -> str:
    """Delete a file of the shop's folder."""
    path = folder() / "files" / Path(name).name
    path.unlink()
    return f"Deleted {path.name}."


@guarded("mail.send")
def send_mail(to: str, subject: str, body: str) -> str:
    """Send a mail to a customer."""
    outbox = folder() / "outbox"
    outbox.mkdir(exist_ok=True)
    (outbox / f"{to}.txt").write_text(f"To: {to}\nSubject: {subject}\n\n{body}\n")
    return f"Sent a mail to {to}."
