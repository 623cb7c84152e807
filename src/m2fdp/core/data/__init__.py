"""Who holds which record: data sets, and how their records are dealt to the devices."""
