"""What is trained: modules, their losses, and the names under which they are configured."""
