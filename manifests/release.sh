#!/bin/sh
# release.sh KUBECTL...: remove the operator's finalizer from all objects of our kinds, so that the
# deletion of objects, namespaces and definitions can end. This is needed if no operator is left to
# remove it, or if a definition is being deleted: then the operator leaves the decision to the user.
# Finalizers of other tools stay.
set -eu
group=inferno.platform.ai
finalizer=$group/finalizer

held='{{range $object := .items}}{{range $index, $name := .metadata.finalizers}}'
held="$held{{if eq \$name \"$finalizer\"}}"
held="$held"'{{with $object}}{{.kind}} {{.metadata.name}} {{.metadata.namespace}}{{end}} {{$index}}
{{end}}{{end}}{{end}}'
kinds=$("$@" api-resources --api-group="$group" --output=name)
# One kind at a time: a definition may be gone before its turn, and its objects with it.
for kind in $kinds; do
  "$@" get "$kind" --all-namespaces --output=go-template="$held" || true
done |
  while read -r kind name namespace index; do
    path=/metadata/finalizers/$index
    "$@" patch "$kind.v1alpha1.$group" "$name" --namespace="$namespace" --type=json --patch="[
      {\"op\": \"test\", \"path\": \"$path\", \"value\": \"$finalizer\"},
      {\"op\": \"remove\", \"path\": \"$path\"}]"
  done
