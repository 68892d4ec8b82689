"""SQLAlchemy metadata of all tables, for migrations and for code that needs the complete schema."""

from sqlalchemy import MetaData

import toolgate_service.accounts.models
import toolgate_service.accounts.slack_links
import toolgate_service.agents.models
import toolgate_service.approvals.models
import toolgate_service.audit.models
import toolgate_service.billing.models
import toolgate_service.db.migrate
import toolgate_service.grants.models
import toolgate_service.jobs.scheduler
import toolgate_service.logs.models
import toolgate_service.organizations.models
import toolgate_service.permissions.models
import toolgate_service.webhooks.models  # noqa: F401 - imported so that each declares its tables
from toolgate_service.db.models import Table

METADATA: MetaData = Table.metadata
