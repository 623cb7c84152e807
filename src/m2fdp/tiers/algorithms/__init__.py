"""The algorithms that train split models, one small file each."""
