"""Records from elsewhere: arrays in a file, torchvision's data sets, and a synthetic one."""
