"""What a round is and what an epsilon is; it knows nothing of the rooms around it."""
