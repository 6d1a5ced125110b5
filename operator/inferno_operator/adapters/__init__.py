"""The rim: what talks to the API server and to solvers."""
