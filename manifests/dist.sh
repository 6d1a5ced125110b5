#!/bin/bash
# dist.sh: make everything that a release consists of, and say what this machine cannot make.
# `make dist` calls it with DIST, VERSION, IMG, BASE, CONTAINER_TOOL, KUBECTL, PYTHON and RELEASE_URL.
# The same commit gives the same bytes: every time is that of the commit.
set -euo pipefail
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null || echo 315532800)  # 1980-01-01
fi
export SOURCE_DATE_EPOCH
mkdir -p "$DIST"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

made() { echo "made      $DIST/$1"; }
left_out() { echo "not made  $1: $2"; }

# archive FILE FOLDER NAME...: a compressed archive whose bytes depend on nothing but its files.
archive() {
  local file=$1 folder=$2
  shift 2
  tar --create --directory "$folder" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --exclude-vcs "$@" |
    gzip --no-name --best > "$file"
}

packages() {
  "$PYTHON" -m pip install --quiet --require-hashes --target "$work/build" \
    --requirement manifests/image/build-requirements.txt
  PYTHONPATH=$work/build "$PYTHON" -m hatchling build --directory "$work/packages" > "$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  for file in "$work"/packages/*; do
    mv "$file" "$DIST"
    made "$(basename "$file")"
  done
}

chart() {
  archive "$DIST/inferno-$VERSION.tgz" manifests/helm inferno
  made "inferno-$VERSION.tgz (the chart: helm install, helm push)"
}

installers() {
  if ! command -v "$KUBECTL" > /dev/null; then
    left_out "the installers" "$KUBECTL is not on PATH"
    return
  fi
  for folder in manifests/kustomize/overlays/*; do
    local file=install-${folder##*/}.yaml
    "$KUBECTL" kustomize "$folder" | sed "s|image: inferno-operator:.*|image: $IMG|" > "$DIST/$file"
    made "$file"
  done
}

# The plugin needs Python packages, so krew installs a script that runs them with pipx: those of the
# wheel beside it and of no other, whatever a registry has under its name.
krew() {
  if [ -z "$RELEASE_URL" ]; then
    left_out "the krew manifest" "name the address of the release: make dist RELEASE_URL=https://..."
    return
  fi
  local file=kubectl-inferno-$VERSION.tar.gz
  mkdir "$work/krew"
  local wheel=inferno_operator-$VERSION-py3-none-any.whl
  printf '#!/bin/sh\nexec pipx run --spec "%s/%s#sha256=%s" kubectl-inferno "$@"\n' \
    "${RELEASE_URL%/}" "$wheel" "$(sha256sum "$DIST/$wheel" | cut -d ' ' -f 1)" \
    > "$work/krew/kubectl-inferno"
  chmod +x "$work/krew/kubectl-inferno"
  archive "$DIST/$file" "$work/krew" kubectl-inferno
  made "$file"
  sed -e "s|VERSION|$VERSION|g" -e "s|URL|${RELEASE_URL%/}/$file|" \
    -e "s|SHA256|$(sha256sum "$DIST/$file" | cut -d ' ' -f 1)|" -e '/^#/d' manifests/krew.yaml > "$DIST/krew.yaml"
  made krew.yaml
}

image() {
  if ! command -v "$CONTAINER_TOOL" > /dev/null; then
    left_out "the image" "$CONTAINER_TOOL is not on PATH"
  elif [[ $BASE != *@sha256:* ]]; then
    left_out "the image" "name its base by digest: make dist BASE=python:3.12-slim-bookworm@sha256:..."
  else
    "$CONTAINER_TOOL" buildx build --platform linux/amd64,linux/arm64 --build-arg "BASE=$BASE" \
      --label "org.opencontainers.image.title=inferno-operator" \
      --label "org.opencontainers.image.version=$VERSION" \
      --label "org.opencontainers.image.licenses=Apache-2.0" \
      --tag "$IMG" --output "type=oci,dest=$DIST/image-$VERSION.tar,rewrite-timestamp=true" .
    made "image-$VERSION.tar (linux/amd64, linux/arm64)"
  fi
}

packages
chart
installers
krew
image
(cd "$DIST" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort --zero-terminated |
  xargs --null sha256sum > "$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
made "SHA256SUMS (sha256sum --check SHA256SUMS)"
