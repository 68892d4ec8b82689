"""Program of ``toolgate demo``: a gateway, the agent of ``examples/shop``, and a person who approves.

The command loads this package from its folder, so imports within it are relative.
"""

from pathlib import Path

from .gateway import DemoGateway, Owner
from .screen import Screen
from .second_terminal import open_second_terminal
from .shop import DemoError, Shop, check_results, choose_model

__all__ = ["DemoError", "play"]


def play(
    example: Path, folder: Path, *, model: str | None, secret: str | None, keep: bool, by_hand: bool
) -> None:
    """Play the demo in an empty folder.

    Args:
        example: the folder with the shop's files and agent.
        folder: for the shop's data and the gateway's database.
        model: "scripted", or the name of a chat model; None for a default.
        secret: the gateway's secret; None for the one of this installation.
        keep: the folder remains, so print how to use it.
        by_hand: the user decides in a second terminal.

    Raises:
        DemoError: something could not start, or the results are not as expected.
    """
    choice = choose_model(model)
    screen = Screen()
    screen.print_title()
    screen.print_progress("laying out the shop: a database of orders and two files")
    shop = Shop.create(example, folder)
    # A missing extra is reported before anything is started.
    screen.print_progress("loading LangChain")
    agent = shop.load_agent()
    screen.print_progress("starting a gateway on a database of its own")
    with DemoGateway(folder / "gateway.db", secret=secret) as gateway, Owner(gateway.url) as owner:
        screen.print_progress("registering the owner, creating the agent and its permissions")
        agent_id = owner.create_agent()
        screen.print_opening(gateway.url, choice.name)
        with screen.show_decisions(), open_second_terminal(owner, screen, by_hand=by_hand):
            shop.run_agent(agent, owner, agent_id, choice, screen)
        entries, approvals = owner.list_logs(), owner.list_approvals()
        screen.print_shop(shop)
        if keep:
            owner.write_login(folder / "demo.json", agent_id)
            screen.print_kept(folder)
        screen.print_logs(entries)
        wrong = check_results(shop, entries, approvals, may_reject=by_hand)
    if wrong:
        raise DemoError("the results of the demo are not as expected: " + "; ".join(wrong))
    screen.print_next_steps(keep=keep, by_hand=by_hand)
