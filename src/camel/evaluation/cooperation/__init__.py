"""Does cooperation help? Methods of one model and of several agents solve the same problems with equal numbers of tokens."""
