"""Many processes and machines: workers that share memory, blocks computed elsewhere, and Ray."""
