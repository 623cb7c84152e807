"""(P) of J Sec. V, and the adaptive controller that solves it round by round."""
