"""Every table in one place, for migrations and for whoever needs the whole schema."""

from sqlalchemy import MetaData

import toolgate_service.accounts.models
import toolgate_service.agents.models
import toolgate_service.approvals.models
import toolgate_service.audit.models
import toolgate_service.billing.models
import toolgate_service.counts.models
import toolgate_service.grants.models
import toolgate_service.logs.models
import toolgate_service.organizations.models
import toolgate_service.permissions.models
import toolgate_service.slack.models
import toolgate_service.storage.floor
import toolgate_service.upkeep.models
import toolgate_service.webhooks.models  # noqa: F401 - imported so that each declares its tables
from toolgate_service.storage.base import Table

METADATA: MetaData = Table.metadata
