"""Ray: the connection, tasks of studies, and the sites that compute one run's rounds."""
