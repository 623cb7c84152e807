"""Records, splits, modules and edges that a user gives: what must be true of them."""
