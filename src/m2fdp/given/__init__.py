"""What a user gives: files of parameters, records, splits, modules and edges, and their checks."""
