"""Tables that the command lines print."""
