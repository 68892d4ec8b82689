"""Runner of the guarantees: creates the scratch organizations, runs the tests, and deletes the organizations."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from toolgate_cli.verify.client import (
    ApiClient,
    Call,
    GatewayOverloaded,
    GatewayUnreachable,
    UnexpectedResponse,
)
from toolgate_cli.verify.organizations import (
    OTHER_ROLES,
    ROLES,
    SCRATCH_PATH,
    Organization,
    create_organization,
    delete_organization,
    read_keys,
)
from toolgate_cli.verify.registry import Guarantee, NotTested, Violation
from toolgate_cli.verify.report import Outcome, Report, Result
from toolgate_cli.verify.trial import Options, Trial

#: number of tests that run at the same time
_PARALLEL: Final = 6
#: maximum seconds of one test
_TEST_SECONDS: Final = 180.0
_CLEANUP_SECONDS: Final = 20.0


class UnusableGateway(Exception):
    """The guarantees cannot be tested at this gateway; the message contains the reason."""


@dataclass(slots=True)
class Runner:
    """Test of a gateway.

    Args:
        urls: addresses of the replicas.
        token: operator's token.
        rate: maximum number of requests per second.
        expiry: seconds after which the gateway deletes the scratch organizations by itself.
        options: options of the command.
        on_result: function that is called with each result.

    Attributes:
        notes: what the command left at the gateway, and other remarks.
    """

    urls: Sequence[str]
    token: str = field(repr=False)
    rate: float
    expiry: int
    options: Options
    on_result: Callable[[Result], None]
    notes: list[str] = field(default_factory=list)

    async def run(self, guarantees: Sequence[Guarantee]) -> Report:
        """Test the guarantees and return the report. The scratch organizations are deleted in any case.

        Raises:
            UnusableGateway: the gateway does not respond, or cannot create scratch organizations.
        """
        began = time.monotonic()
        api = ApiClient(self.urls, self.rate)
        try:
            version = await self._check_replicas(api)
            async with self._organizations(api) as (main, other):
                found = await self._run_all(api, main, other, guarantees)
        except (GatewayUnreachable, GatewayOverloaded, UnexpectedResponse) as error:
            raise UnusableGateway(str(error)) from error
        finally:
            await api.close()
        order = {one.id: place for place, one in enumerate(guarantees)}
        found.sort(key=lambda one: order[one.guarantee.id])
        return Report(
            self.urls, version, time.monotonic() - began, api.sent, found, [*dict.fromkeys(self.notes)]
        )

    async def _check_replicas(self, api: ApiClient) -> str:
        versions = set()
        for place, url in enumerate(self.urls):
            answer = await api.send(Call("GET", "/health", replica=place))
            content = answer.json()
            if not answer.is_success or not isinstance(content, dict) or "version" not in content:
                raise UnusableGateway(
                    f"{url} is not a Toolgate gateway: status {answer.status} of GET /health"
                )
            versions.add(str(content["version"]))
        if len(versions) > 1:
            self.notes.append(f"the replicas have different versions: {', '.join(sorted(versions))}")
        return versions.pop()

    @asynccontextmanager
    async def _organizations(self, api: ApiClient) -> AsyncIterator[tuple[Organization, Organization]]:
        """Create the two scratch organizations, and delete them at the end, also after Ctrl-C."""
        operator = {"Authorization": f"Bearer {self.token}"}
        created: list[Organization] = []
        try:
            for roles in (ROLES, OTHER_ROLES):
                created.append(await self._create(api, operator, roles))
                await read_keys(created[-1])
            main, other = created
            yield main, other
        finally:
            # Shielded, so that a second Ctrl-C does not end the deletion before the request was sent.
            await asyncio.shield(self._delete_all(api, operator, created))

    async def _create(
        self, api: ApiClient, operator: Mapping[str, str], roles: Sequence[str]
    ) -> Organization:
        # Sent without retries first, because the statuses 401 and 404 have their own messages.
        probe = await api.send(Call("DELETE", f"{SCRATCH_PATH}/none", None, operator))
        if probe.status == HTTPStatus.UNAUTHORIZED:
            raise UnusableGateway("the gateway does not accept the operator's token")
        if "Scratch organization" not in probe.text:
            raise UnusableGateway(
                "the gateway cannot create scratch organizations; set TOOLGATE_OPERATOR_TOKEN at the gateway"
            )
        return await create_organization(api, operator, self.expiry, roles)

    async def _delete_all(
        self, api: ApiClient, operator: Mapping[str, str], created: Sequence[Organization]
    ) -> None:
        for organization in created:
            problem = None
            try:
                async with asyncio.timeout(_CLEANUP_SECONDS):
                    answer = await delete_organization(api, operator, organization.id)
                if not answer.is_success:
                    problem = f"status {answer.status}"
            except (GatewayUnreachable, GatewayOverloaded, TimeoutError) as error:
                problem = str(error) or "the gateway did not respond in time"
            if problem is not None:
                self.notes.append(
                    f"the scratch organization {organization.id} was not deleted ({problem}); it expires at "
                    f"{organization.expires_at}"
                )

    async def _run_all(
        self, api: ApiClient, main: Organization, other: Organization, guarantees: Sequence[Guarantee]
    ) -> list[Result]:
        places = asyncio.Semaphore(_PARALLEL)
        found: list[Result] = []

        async def run_one(number: int, one: Guarantee) -> None:
            async with places:
                result = await _test(one, Trial(api, main, other, self.options, number))
                found.append(result)
                self.on_result(result)

        numbered = list(enumerate(guarantees))
        async with asyncio.TaskGroup() as group:
            for number, one in numbered:
                if not one.is_exclusive:
                    group.create_task(run_one(number, one))
        for number, one in numbered:
            if one.is_exclusive:
                await run_one(number, one)
        return found


async def _test(one: Guarantee, trial: Trial) -> Result:
    """Test a guarantee. A response that the test does not expect is a violation, and a missing one interrupts the test."""
    began = time.monotonic()
    outcome, detail, is_interrupted = Outcome.PASS, "", False
    try:
        async with asyncio.timeout(_TEST_SECONDS):
            detail = await one.test(trial) or ""
    except Violation as violation:
        outcome, detail = Outcome.FAIL, str(violation)
    except NotTested as reason:
        outcome, detail = Outcome.NOT_TESTED, str(reason)
    except UnexpectedResponse as error:
        outcome, detail = Outcome.FAIL, f"the gateway sent an unexpected response: {error}"
    except GatewayUnreachable as error:
        outcome, detail, is_interrupted = Outcome.NOT_TESTED, str(error), True
    except GatewayOverloaded as error:
        outcome, detail, is_interrupted = Outcome.NOT_TESTED, f"the gateway is overloaded: {error}", True
    except TimeoutError:
        detail = f"the test did not end within {_TEST_SECONDS:.0f} s"
        outcome, is_interrupted = Outcome.NOT_TESTED, True
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        outcome, detail = Outcome.FAIL, f"the gateway sent an unexpected response: {error!r}"
    return Result(one, outcome, detail, time.monotonic() - began, is_interrupted)
