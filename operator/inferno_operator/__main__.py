"""`python -m inferno_operator`: the same as `inferno`."""

from inferno_operator.cli.entry import inferno

if __name__ == "__main__":  # not in the processes that solve: they import this module too
    inferno()
