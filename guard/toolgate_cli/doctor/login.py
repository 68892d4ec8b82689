"""Whether the stored login can be used, and works."""

from collections.abc import Iterator

from toolgate_cli.answers import ManagementError
from toolgate_cli.doctor.findings import Finding
from toolgate_cli.doctor.surroundings import Surroundings


def check_login(around: Surroundings) -> Iterator[Finding]:
    """Yield what is to be said of the login."""
    if around.login_error is not None:
        yield Finding("login", "wrong", around.login_error, "run: toolgate login, which replaces it")
        return
    if around.login is None:
        yield Finding("login", "ok", "nobody is logged in; only people need to be")
        return
    who = f"{around.login.email} at {around.login.url}"
    try:
        with around.login.management() as management:
            management.get("/auth/me")
    except ManagementError as error:
        if error.is_login_over:
            yield Finding("login", "wrong", f"the login of {who} has ended", "run: toolgate login")
        else:
            says = f"whether the login of {who} works is not known: {error}"
            yield Finding("login", "unknown", says)
        return
    yield Finding("login", "ok", who)
    if around.api_key is not None:
        says = "an API key is set where somebody is logged in: an agent that runs here can use the login"
        yield Finding("login", "warning", says, "run agents as another user, or run: toolgate logout")
