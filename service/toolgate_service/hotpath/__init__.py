"""What the three busiest routes share: a raw ASGI road, one statement, one writer."""
