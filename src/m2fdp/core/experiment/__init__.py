"""The assembly room: a configuration becomes plan, mechanism, training and promise."""
