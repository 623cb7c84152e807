"""What the network is: the tree, who is trusted, and where noise is added."""
