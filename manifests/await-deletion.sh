#!/bin/sh
# await-deletion.sh SECONDS KUBECTL...: wait until our definitions, which are being deleted, are gone.
# An operator that runs elsewhere may give objects its finalizer again, as long as they are not being
# deleted: so it is released again and again. Says what is left, and gives up after some time.
set -eu
seconds=$1
shift
group=inferno.platform.ai
held='{{range .items}}{{if .metadata.finalizers}}{{.kind}} {{.metadata.name}}'
held="$held"' in {{.metadata.namespace}} (finalizers:{{range .metadata.finalizers}} {{.}}{{end}})
{{end}}{{end}}'
why='{{if .metadata}}{{.metadata.name}}{{range .status.conditions}}{{if eq .type "Terminating"}}: {{.message}}{{end}}{{end}}
{{end}}'

end=$(($(date +%s) + seconds))
while :; do
  "$(dirname "$0")/release.sh" "$@"
  # After a failure the API server goes on when the definition changes, else after up to 17 minutes.
  for kind in ${kinds:-}; do
    "$@" annotate crd "$kind" --overwrite "$group/awaited=$(date +%s)" > /dev/null 2>&1 || true
  done
  kinds=$("$@" get crd --output=name | sed -n "s|.*/\(.*\.$group\)$|\1|p")
  [ -n "$kinds" ] || exit 0
  "$@" wait --for=delete --timeout=3s "crd/${kinds%%
*}" > /dev/null 2>&1 || true
  left=$(for kind in $kinds; do
    "$@" get "$kind" --all-namespaces --output=go-template="$held" 2> /dev/null || true
    "$@" get crd "$kind" --ignore-not-found --output=go-template="$why" || true
  done | sort | sed -n '1,5p;6s/.*/and others/p')
  [ "$left" = "${before:-}" ] || echo "waiting for the deletion of $left" >&2
  before=$left
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "gave up after $seconds s: the definitions wait for the deletion of" >&2
    echo "$left" >&2
    echo "remove the finalizers of other tools, or stop what adds them; then run this again" >&2
    exit 1
  fi
done
