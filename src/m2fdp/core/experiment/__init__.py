"""The assembly room: a configuration becomes plan, mechanism, training, audit, bound and attack."""
