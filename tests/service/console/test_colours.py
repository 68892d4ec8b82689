"""Contrast of the style sheet's colours in light and dark (WCAG 2.2 AA)."""

import re
from importlib.resources import files

import pytest

STYLE = files("toolgate_service.console").joinpath("static", "console.css").read_text("utf-8")
TOKENS = [
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
]
SCHEMES = {"light": TOKENS[0], "dark": TOKENS[0] | TOKENS[1]}
WHITE = "#ffffff"

#: text colours by background
TEXT = [
    *(
        (ink, ground)
        for ink in ("ink", "soft", "faint", "accent")
        for ground in ("ground", "surface", "sunken")
    ),
    *((f"{kind}-ink", ground) for kind in ("go", "stop", "warn") for ground in (f"{kind}-wash", "surface")),
    ("accent", "accent-wash"),
    ("surface", "accent"),
    *((WHITE, ground) for ground in ("go", "go-hover", "stop", "stop-hover", "main")),
]
#: edges of buttons and fields
EDGES = [("line-strong", "surface"), ("line-strong", "ground")]


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_contrast_is_sufficient(scheme: str) -> None:
    """4.5 to 1 for text, 3 to 1 for edges; each scheme defines every colour."""
    tokens = SCHEMES[scheme] | {WHITE: WHITE}
    low = {
        (one, other): round(found, 2)
        for pairs, least in ((TEXT, 4.5), (EDGES, 3.0))
        for one, other in pairs
        if (found := contrast(tokens[one], tokens[other])) < least
    }
    assert low == {}
    assert set(TOKENS[0]) == set(TOKENS[1])


def test_colours_are_defined_by_tokens() -> None:
    """Exceptions are white on filled buttons and the banner of the test environment."""
    rest = STYLE[STYLE.index("*, *::before") :]
    assert set(re.findall(r"#[0-9a-f]{3,6}\b", rest)) == {"#fff", "#ffd166", "#ffc233", "#3a2500"}
