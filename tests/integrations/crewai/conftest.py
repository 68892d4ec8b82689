"""What must come before all else that is CrewAI's."""

# It sets the environment, and is quiet about what is warned of while the framework is imported.
from support.frameworks import crewai  # noqa: F401 - as said
