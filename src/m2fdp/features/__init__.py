"""Features of records that no record has shaped: maps, what they are fitted on, the cache."""
