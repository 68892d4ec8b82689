"""Background jobs of the gateway: scheduler, maintenance lease, and deletion of rows in batches."""
