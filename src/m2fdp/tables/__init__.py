"""Tables of a user's own: what may stand in them, what rows become, and models that answer rows."""
