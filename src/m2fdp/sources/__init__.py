"""Data sets by name that are no part of the core: torchvision's, and a synthetic one."""
