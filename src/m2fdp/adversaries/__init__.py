"""What an observer can take: canary audits, reconstruction and membership attacks on the messages
that it reads in the engine's own rounds."""
