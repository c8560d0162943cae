# inside_own_root.sh COMMAND...: COMMAND where / is a mount point, in the folder in which this was called. For a chroot whose root is none: there
# nothing can be given mounts of its own (unshare(1): "cannot change root filesystem propagation"). Called in a mount namespace of its own, whose mounts
# may still be shared with others: so the first one is made where nothing is passed on.
set -euo pipefail
base=/dev/shm
mount --make-private $base
mount -t tmpfs root $base
mkdir $base/root
mount --rbind / $base/root
mount --make-rprivate $base/root
exec chroot $base/root bash -c 'cd -- "$0" && exec "$@"' "$PWD" "$@"
