#!/bin/sh
# pod-view.sh IMAGE SECRETS HOSTS PROGRAM...: run a program of an image as a pod with a read-only
# root file system does. It sees SECRETS at /var/run/secrets and HOSTS at /etc/hosts, may write in
# an empty /tmp and nowhere else, and has no privileges. To be called in namespaces of its own:
#   unshare --user --map-user=65532 --map-group=65532 --keep-caps --mount
set -eu
image=$1
secrets=$2
hosts=$3
shift 3

run=$(readlink -f /var/run)
mount -t tmpfs tmpfs "$run"
mkdir "$run/image" "$run/secrets"
mount --bind "$image" "$run/image"
mount --bind "$secrets" "$run/secrets"
mount --bind "$hosts" /etc/hosts
mount -t tmpfs tmpfs /tmp
mkdir -p "$image" # it may have been in /tmp
mount --bind "$run/image" "$image"

while read -r _ target _ options _; do
  case $target in
    /tmp | /dev | /dev/* | /proc | /proc/* | /sys | /sys/*) ;;
    *) mount -o "remount,bind,$options,ro" "$target" ;;
  esac
done < /proc/self/mounts

cd /
exec setpriv --pdeathsig KILL --no-new-privs \
  --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
