"""Find or build the control plane's programs, and say where they are."""

import os
import sys

from tests.controlplane.binaries import Binaries
from tests.controlplane.errors import BinaryError


def main() -> int:
    """Print a line for each program; the exit status."""
    binaries = Binaries(os.environ)
    try:
        for name, path in binaries.find_all(("etcd", "kube-apiserver", "kubectl")).items():
            print(f"{name:15} {path} ({binaries.origin(name)})")
    except BinaryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
