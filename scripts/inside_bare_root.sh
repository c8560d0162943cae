# What ./run bare starts in namespaces of its own: inside_bare_root.sh ROOT COMMAND... makes ROOT the root of the file system, as a
# machine that starts there has it, and runs COMMAND in the project's clone. A mere chroot would do for most; but where the root is no
# mount point, nothing can be given namespaces of its own, as ./run cluster does.
set -euo pipefail

trap 'exit 130' INT   # the first process of a namespace ignores what it has no handler for
trap 'exit 143' TERM

root=$1
shift
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
if [ -n "${SHARED_CACHE:-}" ]; then
  mount --bind "$SHARED_CACHE" ".$CCACHE_DIR"
  unset SHARED_CACHE
fi
pivot_root . .
umount -l .
cd "$CLONE"
unset CLONE
status=0
env --default-signal=INT,QUIT "$@" || status=$?
exit $status
