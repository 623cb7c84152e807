"""Problem (P) of J, and the adaptive controller that solves it round by round."""
