"""Forms whose answer shows a secret: sent once more, by a reload or from the history, they do nothing.

Such an answer is the page itself, since a secret can stand in no address. Its form names the newest thing that its page
knew of; once that thing is another, the form is an old one.
"""

from toolgate_service.console.forms import Form
from toolgate_service.errors import ApiError

REPEATED = "This form was sent before, or somebody else was faster: nothing was changed now. Look at the page, then decide anew"


def refuse_repeated(form: Form, newest: str | None) -> None:
    """Refuse a form whose page knew another newest thing.

    Raises:
        ApiError: 409.
    """
    if form["newest"] != (newest or ""):
        raise ApiError(409, REPEATED)
