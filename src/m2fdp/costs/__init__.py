"""What a round costs in joules and seconds."""
