#!/bin/sh
# install.sh SOURCE TARGET: create the virtual environment of the image, with the wheel of SOURCE
# and its dependencies, but without tools to build or install. The Dockerfile runs this script, and
# so do the tests on machines without Docker.
set -eu
source=$1
target=$2

# Every package, those that build the wheel as well, is one whose hash is known.
pinned="$source/manifests/image"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv --without-pip "$work/tools"
python3 -m pip --python "$work/tools/bin/python" install --quiet --no-compile --require-hashes \
  --requirement "$pinned/build-requirements.txt"
(cd "$source" && "$work/tools/bin/hatchling" build --target wheel --directory "$work/wheels")
python3 -m venv --without-pip "$target"
python3 -m pip --python "$target/bin/python" install --quiet --no-compile --require-hashes \
  --requirement "$pinned/requirements.txt"
python3 -m pip --python "$target/bin/python" install --quiet --no-compile --no-index --no-deps \
  "$work"/wheels/*.whl
python3 -m pip --python "$target/bin/python" check --quiet

# Remove what is never used: tests of packages, a build tool and headers of numpy, the solvers that
# PuLP bundles, and the second copy of a library if a wheel has no links. Of the Kubernetes client,
# keep only the two APIs that the operator calls, and nothing of its synchronous part, which nothing
# calls: the client imports an API or a model on first use.
packages=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$packages"
rm -rf highspy/libhighs.so.*.*.* numpy/f2py numpy/_core/include numpy/_core/lib pulp/solverdir
find . -type d -name tests -prune -exec rm -rf {} +
find kubernetes/aio/client/api -name '*_api.*' \
  ! -name 'core_v1_api.*' ! -name 'custom_objects_api.*' -delete
find kubernetes/client/api -name '*_api.*' -delete
find kubernetes/client/models -type f ! -name '__init__.*' -delete

# Bytecode comes last, for most modules of the Kubernetes client are gone by now.
"$target/bin/python" -m compileall -q .
