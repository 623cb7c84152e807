"""Fixed features of records, fitted on public images: maps, what they are fitted on, the cache."""
