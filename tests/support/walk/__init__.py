"""A walk along every route of the gateway, as everybody who must not get anywhere there."""
