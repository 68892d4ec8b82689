"""The code of docs/frameworks/custom, in the hooks of an invented framework."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from support.frameworks import invented
from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from support.frameworks.invented import Hooks, Loop, ToolCall
from support.readme import blocks

PAGE = "docs/frameworks/custom/recipe.md"
#: the page that continues the plugin of `PAGE`
HOOKS_PAGE = "docs/frameworks/custom/hooks.md"


def files() -> dict[str, str]:
    """The Python blocks of both pages by the file name in their first lines; a file may be continued in a later block."""
    found: dict[str, str] = {}
    for block in [*blocks(PAGE, "python"), *blocks(HOOKS_PAGE, "python")]:
        name = block.split()[1].rstrip(",")
        found[name] = f"{found.get(name, '')}{block}"
    return found


@cache
def made() -> dict[str, Any]:
    """What the page's plugin defines, with the invented framework as the reader's own."""
    space: dict[str, Any] = {"__name__": "recipe"}
    before = sys.modules.get("your_framework")
    sys.modules["your_framework"] = invented
    try:
        exec(compile(files()["guard_hook.py"], PAGE, "exec"), space)
    finally:
        if before is None:
            del sys.modules["your_framework"]
    return space


def hook_of(scene: Scene, name: str, **options: Any) -> Any:
    """The page's class `name`, made for a scene."""
    return made()[name](scene.guard, agents={"treasurer": scene.agent_id}, **options)


def around(scene: Scene, **options: Any) -> Hooks:
    """The hook around tools."""
    hook = hook_of(scene, "GuardHook", **options)
    return Hooks(
        around=hook.around, aaround=hook.aaround, rejected=hook.rejected, before_model=hook.raise_fatal
    )


def between(scene: Scene, **options: Any) -> Hooks:
    """The two callbacks."""
    hook = hook_of(scene, "GuardCallbacks", **options)
    return Hooks(before=hook.before, after=hook.after, rejected=hook.rejected, before_model=hook.raise_fatal)


class RecipeSession:
    """One run of a loop."""

    def __init__(
        self,
        scene: Scene,
        mode: Mode,
        hooks: Callable[..., Hooks],
        on_hold: OnHold,
        state: str | None = None,
    ) -> None:
        self._scene, self._mode, self._hooks, self._on_hold = scene, mode, hooks, on_hold
        self._loop = Loop(dict(scene.tools), hooks(scene, on_hold=on_hold))
        if state is not None:
            self._loop.load(state)

    async def start(self, *calls: Call) -> Seen:
        self._loop.turns.append([ToolCall(each.tool, dict(each.arguments), each.id) for each in calls])
        return await self._run()

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        if answer == "reject":
            for call_id in list(self._loop.paused):
                if only is None or call_id in only:
                    await asyncio.to_thread(self._loop.reject, call_id, "no")
        return await self._run()

    def restarted(self) -> "RecipeSession":
        return RecipeSession(self._scene, self._mode, self._hooks, self._on_hold, self._loop.state())

    async def close(self) -> None:
        pass

    async def _run(self) -> Seen:
        if self._mode == "async":
            await self._loop.arun()
        else:
            await asyncio.to_thread(self._loop.run)
        held = {call_id: about for call_id, (_, about) in self._loop.paused.items()}
        return Seen(held, dict(self._loop.read), self._loop.text)


class Recipe:
    """A framework without a plugin, and the page's hook."""

    prefix = "tools"
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {
        "test_default_argument_is_asked_about": (
            "the example framework fills in a tool's defaults after its hooks, so the check does "
            "not contain the defaults"
        ),
    }

    def __init__(self, name: str, modes: Sequence[Mode], hooks: Callable[..., Hooks]) -> None:
        self.name, self.modes, self._hooks = name, modes, hooks

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> RecipeSession:
        return RecipeSession(scene, mode, self._hooks, on_hold)


HARNESSES: list[Harness] = [
    Recipe("recipe-around", ("sync", "async"), around),
    Recipe("recipe-callbacks", ("sync",), between),
]
