"""What a round costs: joules and seconds, never read from a clock on the wall."""
