"""Tiers of split models (paper D): what each costs, how long it takes, and who trains which."""
