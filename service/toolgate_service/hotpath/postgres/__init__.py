"""The busiest road on PostgreSQL: prepared statements over pools of plain connections."""
