"""Refusals as people read them."""

import pytest
from pydantic import ValidationError

from toolgate_service.accounts.schemas import Login
from toolgate_service.console.problems import status_of
from toolgate_service.errors import ApiError, bad_credentials, not_found


def test_a_refused_form_keeps_its_status() -> None:
    """The API's own; 400 for what its models refuse."""
    assert status_of(not_found("User")) == 404
    with pytest.raises(ValidationError) as refused:
        Login.model_validate({})
    assert status_of(refused.value) == 400


def test_an_ended_session_is_shown_no_page() -> None:
    """It ended between the look at who asks and the deed: the form leads to signing in, as if it came later."""
    with pytest.raises(ApiError) as ended:
        status_of(bad_credentials())
    assert ended.value.status_code == 401
