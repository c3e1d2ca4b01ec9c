"""The users' sessions on pods that are going to be moved: how many there are, and that no new ones are to be taken."""
