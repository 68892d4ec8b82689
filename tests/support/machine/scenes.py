"""What a run begins with: of chance alone, the rarer things would be missing in some series of runs."""

from functools import partial

from support.machine.driver import ACTIONS
from support.machine.keeping import Keeping
from support.reference.checking import Question
from support.reference.deciding import Terms
from support.reference.facts import Approval

SCENES = ("quorum", "edit", "grant", "upkeep", "nothing")


class Scenes(Keeping):
    """Short scenes of the first agents, of whose `ACTIONS[2]` two people and one must approve."""

    def play(self, scene: str) -> None:
        """Play one of `SCENES`."""
        first, second = self.people(self.tenants[0])[:2]
        match scene:
            case "quorum":
                held, question = self._held(0)
                self.approve_as(first, held)
                self.put(self.tenants[0], question)
                # The request keeps the terms under which it was asked.
                agent = self.world.agents[0]
                loosened = {"required_approvals": 1}
                self.change_conditions(second, agent, agent.permissions[ACTIONS[2]], loosened)
                self.put(self.tenants[0], question)
                self.approve_as(second, held)
                self.put(self.tenants[0], question)
            case "edit":
                held, question = self._held(1)
                edited = self.approve_as(first, held, edit='{"amount":1}')
                self.put(*self.questions[edited.id])
                again = self.put(self.tenants[0], question).approval
                assert again is not None
                self.withdraw_by(self.tenants[0], again)
                self.put(self.tenants[0], question)
            case "grant":
                held, question = self._held(1)
                self.approve_as(first, held, terms=Terms(3, 3600))
                for _ in range(2):
                    self.put(self.tenants[0], question)
                self.revoke_as(second, self.world.grants[0])
            case "upkeep":
                held, question = self._held(1)
                self.approve_as(second, held)
                for step in (partial(self.turn_role, second), self.run_jobs, self.begin_anew):
                    step()
                    self.put(self.tenants[0], question)
                self.turn_role(second)
                self.put(self.tenants[0], question)

    def _held(self, agent: int) -> tuple[Approval, Question]:
        question = Question(self.world.agents[agent].id, ACTIONS[2], '{"to":"Zoë","amount":5}')
        held = self.put(self.tenants[0], question).approval
        assert held is not None
        return held, question
