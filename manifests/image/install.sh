#!/bin/sh
# install.sh SOURCE TARGET: what is in the image, a virtual environment with the wheel of SOURCE
# and what it takes to run, but nothing to build or install with. The Dockerfile runs this, and
# the tests do, on machines without Docker.
set -eu
source=$1
target=$2

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
python3 -m venv --without-pip "$target"
python3 -m pip --python "$target/bin/python" install --quiet \
  --constraint "$source/constraints.txt" "$wheels"/*.whl

# Half of it would never be used: of one solver debugging variants, headers, and each library three
# times over (a wheel has no links), and the same solver again for other systems.
packages=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$packages"
rm -rf cbcbox/*debug* cbcbox/*/include cbcbox/*/lib/*.so cbcbox/*/lib/*.so.*.*.* \
  cbcbox/*/lib/libopenblasp-* pulp/solverdir
