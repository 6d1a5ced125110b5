#!/bin/sh
# release.sh KUBECTL...: take the operator's finalizer off every object of ours, so that those that
# are to be deleted can go, and with them their namespaces and definitions: where no operator is left
# to do so, and where a definition is being deleted, in which case the operator leaves it to a person.
# Finalizers of others stay.
set -eu
group=inferno.platform.ai
finalizer=$group/finalizer

kinds=$("$@" api-resources --api-group="$group" --output=name | paste -s -d ,)
if [ -z "$kinds" ]; then
  exit
fi
held='{{range $object := .items}}{{range $index, $name := .metadata.finalizers}}'
held="$held{{if eq \$name \"$finalizer\"}}"
held="$held"'{{with $object}}{{.kind}} {{.metadata.name}} {{.metadata.namespace}}{{end}} {{$index}}
{{end}}{{end}}{{end}}'
"$@" get "$kinds" --all-namespaces --output=go-template="$held" |
  while read -r kind name namespace index; do
    path=/metadata/finalizers/$index
    "$@" patch "$kind.v1alpha1.$group" "$name" --namespace="$namespace" --type=json --patch="[
      {\"op\": \"test\", \"path\": \"$path\", \"value\": \"$finalizer\"},
      {\"op\": \"remove\", \"path\": \"$path\"}]"
  done
