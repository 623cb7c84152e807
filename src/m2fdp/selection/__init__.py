"""Counted searches: choosing among settings by noised scores, and what the choice costs."""
