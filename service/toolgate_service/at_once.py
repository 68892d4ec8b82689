"""The requests that are taken the moment they have arrived: with SQLite at once, with PostgreSQL after its answer."""

from collections.abc import Mapping

from toolgate_service.checks import at_once as checks
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.arrivals import ArrivesSoon
from toolgate_service.hotpath.quick import Desk
from toolgate_service.hotpath.rates import CountsNow
from toolgate_service.hotpath.sqlite.reader import SqliteReader
from toolgate_service.logs import at_once as logs
from toolgate_service.metrics.requests import counted_at_once
from toolgate_service.reporting.access import noted_at_once
from toolgate_service.web.at_once import Immediate
from toolgate_service.web.edge import Rules


def taken_at_once(gateway: Gateway) -> Mapping[bytes, Immediate]:
    """Return who takes them, by path.

    Args:
        gateway: the gateway.
    """
    if gateway.settings.traces:
        # There are no spans on the way of these.
        return {}
    quick = _quick(gateway)
    if gateway.figures is not None:
        quick = counted_at_once(quick, gateway.figures)
    return noted_at_once(quick) if gateway.settings.access_log else quick


def _quick(gateway: Gateway) -> Mapping[bytes, Immediate]:
    reader, windows, rules = gateway.reader, gateway.rates, Rules.of(gateway.settings)
    if isinstance(reader, SqliteReader) and isinstance(windows, CountsNow):
        desk = Desk(reader, windows, gateway.plans)
        return {
            checks.PATH: checks.ChecksAtOnce(desk, gateway.recent_keys, rules),
            logs.PATH: logs.LogsAtOnce(gateway, desk, rules),
        }
    if isinstance(reader, ArrivesSoon):
        return {
            checks.PATH: checks.ChecksSoon(reader, gateway.recent_keys, rules),
            logs.PATH: logs.LogsSoon(gateway, reader, rules),
        }
    return {}
