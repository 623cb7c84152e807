"""A tree of real processes: the simulator's plan, noise and ledger on hosts of their own."""
