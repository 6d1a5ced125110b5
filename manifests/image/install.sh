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

# What is never used stays out: tests of packages, a build tool and headers of numpy, the solvers
# that PuLP brings along, the second copy of a library where a wheel has no links. Of the Kubernetes
# client all APIs but the two that the operator calls, and of its synchronous half, which nothing
# calls, all models but those that kopf looks for: an API or model is imported when it is asked for.
packages=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$packages"
rm -rf highspy/libhighs.so.*.*.* numpy/f2py numpy/_core/include numpy/_core/lib pulp/solverdir
find . -type d -name tests -prune -exec rm -rf {} +
find kubernetes/aio/client/api -name '*_api.*' \
  ! -name 'core_v1_api.*' ! -name 'custom_objects_api.*' -delete
find kubernetes/client/api -name '*_api.*' -delete
find kubernetes/client/models -type f ! -name '__init__.*' ! -name 'v1_object_meta.*' \
  ! -name 'v1_owner_reference.*' ! -name 'v1_managed_fields_entry.*' -delete
