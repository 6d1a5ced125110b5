"""The capacity controller: counts the cards of nodes that the Servers of a namespace may use."""
