"""Zones of a hierarchy (paper H): its algorithms, elected servers, what each zone sees."""
