"""What `doctor` makes of what was found: facts in, findings out. Pure, as the core is."""
