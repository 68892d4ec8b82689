"""The page about guarding MCP servers."""

from support.readme import blocks


def test_the_page_runs() -> None:
    """Every block after the example is Python that makes what it shows."""
    shown = blocks("docs/frameworks/mcp.md", "python")[1:]
    assert len(shown) == 3
    for block in shown:
        made: dict[str, object] = {}
        exec(compile(block, "docs/frameworks/mcp.md", "exec"), made)
        assert {"server", "proxy"} & set(made)
