"""`python -m inferno_operator`: the same as `inferno`."""

from inferno_operator.cli import main

main()
