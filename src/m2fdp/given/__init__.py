"""Records and splits that a user gives: what must be true of them."""
