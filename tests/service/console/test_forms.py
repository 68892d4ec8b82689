"""Errors of refused forms."""

import pytest
from pydantic import ValidationError

from toolgate_service.accounts.schemas import Login
from toolgate_service.console.dependencies import error_status
from toolgate_service.core.errors import ApiError, bad_credentials, not_found


def test_a_refused_form_keeps_its_status() -> None:
    """API errors keep their status; validation errors are 400."""
    assert error_status(not_found("User")) == 404
    with pytest.raises(ValidationError) as refused:
        Login.model_validate({})
    assert error_status(refused.value) == 400


def test_an_ended_session_is_shown_no_page() -> None:
    """A session that ends while its form is handled leads to the sign-in page."""
    with pytest.raises(ApiError) as ended:
        error_status(bad_credentials())
    assert ended.value.status_code == 401
