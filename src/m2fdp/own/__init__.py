"""A user's own code: how it is tried, and what epsilon rests on of it."""
