"""Which chat model plays the agent's mind."""

import os
from dataclasses import dataclass

SCRIPTED = "scripted"

#: the environment's key → the model it opens
REAL_MODELS = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5",
    "OPENAI_API_KEY": "openai:gpt-5-mini",
}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A chat model by its name; `demanded` when the user named it, so that no other may stand in for it."""

    name: str
    demanded: bool

    @property
    def is_scripted(self) -> bool:
        """Whether no real model is asked."""
        return self.name == SCRIPTED


def choose_model(named: str | None) -> ModelChoice:
    """Return the model the user named, else a real one whose key is in the environment, else the scripted one."""
    if named is not None:
        return ModelChoice(named, demanded=True)
    for variable, model in REAL_MODELS.items():
        if os.environ.get(variable):
            return ModelChoice(model, demanded=False)
    return ModelChoice(SCRIPTED, demanded=False)
