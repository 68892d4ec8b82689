"""Refusals as people read them."""

from collections.abc import Mapping

from pydantic import ValidationError

from toolgate_service.errors import REQUIRED, ApiError

_STATUS = {
    400: "That cannot be done",
    401: "You are not signed in",
    403: "You may not do that",
    404: "There is no such page",
    405: "That is not how it is done",
    409: "Somebody was faster",
    413: "That is too much",
    421: "Unknown host name",
    429: "Too many requests",
    500: "The gateway failed",
    503: "The gateway's database cannot be used just now",
}


def title_of(status: int) -> str:
    """Return the headline of a refusal."""
    return _STATUS.get(status, "That did not work")


def status_of(error: ApiError | ValidationError) -> int:
    """Return the status with which a form is refused on its own page.

    Raises:
        ApiError: 401 again, where the session has ended meanwhile: it is shown no page any more.
    """
    if not isinstance(error, ApiError):
        return 400
    if error.status_code == 401:  # noqa: PLR2004 - as the table above has them
        raise error
    return error.status_code


def fields_of(error: ApiError | ValidationError) -> Mapping[str, str]:
    """Return what is wrong with which field; empty where the refusal is about no field."""
    if isinstance(error, ValidationError):
        found: dict[str, str] = {}
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"]) or "form"
            missing = problem["type"] in {"missing", "string_too_short"} and not problem.get("input")
            said = REQUIRED if missing else str(problem["msg"]).removeprefix("Value error, ")
            found.setdefault(name, said)
        return found
    detail = error.reply_detail
    if error.status_code == 400 and isinstance(detail, Mapping):  # noqa: PLR2004 - of `FieldErrors`
        return {name: "; ".join(_messages(said)) for name, said in detail.items()}
    return {}


def words_of(error: ApiError | ValidationError) -> str:
    """Return a refusal as one sentence or a few."""
    fields = fields_of(error)
    if fields:
        return "; ".join(f"{name}: {said}" for name, said in fields.items())
    detail = error.reply_detail if isinstance(error, ApiError) else str(error)
    if isinstance(detail, Mapping):
        return str(detail.get("message") or detail.get("error") or title_of(400))
    return detail


def _messages(said: object) -> list[str]:
    return [str(one) for one in said] if isinstance(said, list) else [str(said)]
