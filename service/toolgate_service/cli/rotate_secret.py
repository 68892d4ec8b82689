"""`toolgate admin rotate-secret`: change the gateway's secret and re-encrypt all values that were encrypted with it.

The former secret is kept until a second, separate step deletes it. So each value can always be decrypted with the
current or the former secret.
"""

from collections import Counter

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import SESSION_LIFETIME
from toolgate_service.audit import service as audit
from toolgate_service.cli.context import Lines, OperatorSession, run_with_database
from toolgate_service.core.crypto import Vault, begin_rotation, finish_rotation, secret_path
from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import Settings, is_embedded
from toolgate_service.organizations.models import Organization
from toolgate_service.secret_check import SEALED_MODELS, SealedModel

#: name of the lock that a rotation of the secret holds
SECRET = "secret"  # noqa: S105 - the name of a lock

RESTART = "restart every gateway that has not been told of the new secret: it goes on with the former one"
AGAIN = (
    "once all run with the new secret, run this again; when nothing is left and those tokens have run out, unset "
    "TOOLGATE_SECRET_PREVIOUS"
)
KNOWN = (
    f"nobody has to log in again: tokens of the former secret work until they run out, {SESSION_LIFETIME.days} days from now "
    "at the latest"
)
LEAKED = "everybody has to log in again: TOOLGATE_SECRET_PREVIOUS_LEAKED is set"


def rotate_secret(*, finish: bool = False, discard_unreadable: bool = False) -> Lines:
    """Re-encrypt all encrypted values with a new secret.

    The new secret of an embedded gateway is created by this command. If the secret is set by TOOLGATE_SECRET, the
    operator sets the new secret there, and the former secret as TOOLGATE_SECRET_PREVIOUS, before running the command.

    Args:
        finish: End the rotation: delete the former secret.
        discard_unreadable: Delete the encrypted values that no known secret decrypts, for instance if a secret was
            lost.
    """

    async def work(operator: OperatorSession) -> Lines:
        if discard_unreadable:
            return await _discard_unreadable(operator)
        kept_in_file = operator.settings.secret is None and is_embedded(operator.settings.database_url)
        _refuse_without_secrets(operator.settings, kept_in_file=kept_in_file, finish=finish)
        # If two operators run this command at the same time, the second one waits for the lock.
        async with operator.database.writing(SECRET, patient=True) as session:
            if kept_in_file:
                # Check the current secret before the files change: if it decrypts none of the values, the rotation must
                # not begin.
                _refuse_a_wrong_secret(await _reseal(session, _vault(operator.settings)))
            begun = kept_in_file and not finish and begin_rotation(secret_path())
            vault = _vault(operator.settings)
            counts = await _reseal(session, vault)
            _refuse_a_wrong_secret(counts)
            await _audit(session, finish=finish)
        if kept_in_file and finish:
            finish_rotation(secret_path())
        tokens = LEAKED if operator.settings.secret_previous_leaked else KNOWN
        return [_summary(counts), *_next_steps(tokens, kept_in_file=kept_in_file, begun=begun, finish=finish)]

    return run_with_database(work)


async def _discard_unreadable(operator: OperatorSession) -> Lines:
    vault = _vault(operator.settings)
    discarded = 0
    async with operator.database.writing(SECRET) as session:
        for model in SEALED_MODELS:
            rows = await session.exec(select(model.id, model.organization_id, model.ciphertext))
            for row, organization, sealed in rows.all():
                discarded += await _discard_one(session, vault, model, row, organization, sealed)
        if discarded:
            for organization_id in (await session.exec(select(Organization.id))).all():
                audit.record_outside(session, organization_id, "gateway.sealed_values_discarded")
    return [
        f"{discarded} sealed values that no known secret opens were discarded",
        "API keys still work but cannot be shown again; rotate the secrets of webhooks; everybody has to log in again",
    ]


def _refuse_without_secrets(settings: Settings, *, kept_in_file: bool, finish: bool) -> None:
    if kept_in_file:
        if finish and not settings.former_secrets():
            raise StartError("no rotation is under way; begin one with 'toolgate admin rotate-secret'")
    elif settings.secret is None or settings.secret_previous in {None, settings.secret}:
        raise StartError(
            "set TOOLGATE_SECRET to the new secret and TOOLGATE_SECRET_PREVIOUS to the one until now, for this command "
            "and for every gateway; write them into the environment, never into a command line"
        )


def _vault(settings: Settings) -> Vault:
    return Vault.of(settings)


async def _reseal(session: AsyncSession, vault: Vault) -> Counter[str]:
    counts: Counter[str] = Counter()
    for model in SEALED_MODELS:
        rows = await session.exec(select(model.id, model.organization_id, model.ciphertext))
        for row, organization, sealed in rows.all():
            outcome = await _reseal_one(session, vault, model, row, organization, sealed)
            if outcome is not None:
                counts[outcome] += 1
    return counts


async def _reseal_one(
    session: AsyncSession, vault: Vault, model: type[SealedModel], row: str, organization: str, sealed: bytes
) -> str | None:
    """Re-encrypt one value and return the outcome: `resealed`, `present` (already current) or `lost` (unreadable).

    Return None if the value is empty, because it was discarded or its row was deleted.
    """
    while sealed:
        resealed = vault.resealed(sealed, table=model.__name__, row=row, organization=organization)
        if resealed is None:
            return "lost"
        if resealed == sealed:
            return "present"
        if await _replace(session, model, row, sealed, resealed):
            return "resealed"
        # A gateway replaced the value in the meantime, so read it again and repeat.
        sealed = await _sealed(session, model, row)
    return None


async def _discard_one(
    session: AsyncSession, vault: Vault, model: type[SealedModel], row: str, organization: str, sealed: bytes
) -> bool:
    """Delete a value if no known secret decrypts it; return whether it was deleted."""
    while sealed and vault.open(sealed, table=model.__name__, row=row, organization=organization) is None:
        if await _replace(session, model, row, sealed, b""):
            return True
        sealed = await _sealed(session, model, row)
    return False


async def _replace(
    session: AsyncSession, model: type[SealedModel], row: str, sealed: bytes, by: bytes
) -> bool:
    """Replace an encrypted value if it still equals `sealed`; return whether it was replaced."""
    query = update(model).where(col(model.id) == row, col(model.ciphertext) == sealed).values(ciphertext=by)
    return (await session.exec(query)).rowcount == 1


async def _sealed(session: AsyncSession, model: type[SealedModel], row: str) -> bytes:
    """Return the current encrypted value of a row; empty if the row was deleted."""
    return (await session.exec(select(model.ciphertext).where(model.id == row))).first() or b""


def _refuse_a_wrong_secret(counts: Counter[str]) -> None:
    if counts["lost"] and not counts["present"] + counts["resealed"]:
        raise StartError(
            f"no known secret opens any of the {counts['lost']} sealed values: neither the present secret nor "
            "TOOLGATE_SECRET_PREVIOUS is the one that sealed them; nothing was changed; if that secret is lost, run this "
            "with --discard-unreadable"
        )


async def _audit(session: AsyncSession, *, finish: bool) -> None:
    kind = "gateway.secret_rotation_finished" if finish else "gateway.secret_rotated"
    for organization_id in (await session.exec(select(Organization.id))).all():
        audit.record_outside(session, organization_id, kind)


def _summary(counts: Counter[str]) -> str:
    line = f"{counts['resealed']} sealed values were sealed anew; {counts['present']} were under the new secret already"
    if counts["lost"]:
        line += f"; {counts['lost']} open under neither secret and were left: their keys work, but cannot be shown"
    return line


def _next_steps(tokens: str, *, kept_in_file: bool, begun: bool, finish: bool) -> Lines:
    if not kept_in_file:
        return [RESTART, tokens, AGAIN]
    if finish:
        return ["the former secret is forgotten: whoever still has a token that it signed logs in again"]
    return [
        f"the new secret is in {str(secret_path())!r}"
        if begun
        else "a rotation was under way: its new secret stays",
        RESTART,
        tokens,
        "then run 'toolgate admin rotate-secret --finish', which forgets the former secret",
    ]
