"""When what happens: the schedule of a run, and its rounds as they are planned."""
