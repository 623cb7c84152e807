"""Great Expectations, in a process of its own that others go on beside."""
