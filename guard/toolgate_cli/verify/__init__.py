"""``toolgate verify``: test the guarantees of a running gateway with its database and all its replicas."""
