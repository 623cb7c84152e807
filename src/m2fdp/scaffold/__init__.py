"""SCAFFOLD: corrections that devices keep from round to round."""
