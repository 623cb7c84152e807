"""The round loop of J Algorithm 1: local steps, aggregation, noise, evaluation."""
