"""SQLAlchemy metadata of all tables, for migrations and for code that needs the complete schema."""

from importlib import import_module
from pathlib import Path

from sqlalchemy import MetaData

import toolgate_service
import toolgate_service.db.migrate
import toolgate_service.jobs.scheduler
from toolgate_service.db.models import Table

for models in sorted(Path(toolgate_service.__file__).parent.glob("*/models.py")):
    import_module(f"toolgate_service.{models.parent.name}.models")

METADATA: MetaData = Table.metadata
