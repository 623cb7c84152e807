"""Records from elsewhere: arrays in a file, LEAF, torchvision's data sets, and a synthetic one."""
