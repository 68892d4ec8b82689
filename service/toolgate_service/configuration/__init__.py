"""What the gateway would be started with, and whether it could be; behind ``toolgate config``. Nothing is changed."""

from toolgate_service.configuration.report import check, show

__all__ = ["check", "show"]
