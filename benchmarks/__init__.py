"""Speed, memory and accuracy of m2fdp's simulator next to its peers'."""
