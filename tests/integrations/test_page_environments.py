"""The examples of docs/frameworks run where only what the page's install line names is installed."""

from pathlib import Path

import pytest
from support.framework_pages import Page, normalize, pages, run_isolated


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_install_line_is_enough(page: Page, tmp_path: Path) -> None:
    """In a new environment with locked versions; packages that are not in uv's cache are downloaded."""
    assert normalize(run_isolated(page, tmp_path)) == normalize(page.output)
