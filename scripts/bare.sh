# ./run bare [--release R] [--keep] [--] COMMAND...: what a new user meets. COMMAND in a clean clone of this project, on a system where
# nothing was installed by hand.
. scripts/packages.sh

bare_help() {
  cat <<'HELP'
usage: ./run bare [--release bookworm|trixie] [--keep] [--] COMMAND [ARGUMENTS]

Runs COMMAND as root in a clone of this project's last commit, in a minimal Debian (no compiler, no CMake, no CUDA) that is unpacked
anew for every call and removed afterwards. It has its own files, processes and /dev/shm, and the network and the name of this machine.
Packages come from the Debian mirror that apt uses here, else from deb.debian.org; proxies of apt and of the environment hold there too.

If CCACHE_DIR is set, commands that compile with ccache use that cache. The clone then lies where this folder does (else in
/root/gpusock), so that the cache knows the sources.

  --release R    bookworm (Debian 12, the default) or trixie (Debian 13)
  --keep         leave the root in place, and print where it is

  ./run bare ./run test
  ./run bare --release trixie -- bash

The minimal system is made once a month by mmdebstrap, and kept in ~/.cache/gpusock/bare. A root with all packages and all builds takes
8 GB in TMPDIR (by default /var/tmp). Needs root.

Exit status: that of COMMAND; 1 where the system cannot be made; 2 misuse; 77 where this machine does not let root mount file systems.
HELP
}

main() {
  local release=bookworm keep='' inside status=0
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) bare_help; exit 0 ;;
      --release) [ $# -ge 2 ] || misuse "--release takes bookworm or trixie"; release=$2; shift 2 ;;
      --release=*) release=${1#*=}; shift ;;
      --keep) keep=yes; shift ;;
      --) shift; break ;;
      -*) misuse "bare does not take \"$1\"" ;;
      *) break ;;
    esac
  done
  [[ $release =~ ^(bookworm|trixie)$ ]] || misuse "--release is bookworm or trixie, not \"$release\""
  [ $# -gt 0 ] || misuse "bare takes a command to run there"
  needs_sources bare
  [ "$(id -u)" -eq 0 ] || fail "bare needs root: sudo ./run bare ..."
  require_packages "${bare_packages[@]}"
  isolate=(unshare --mount --pid --fork --kill-child --ipc)
  if ! "${isolate[@]}" mount -t tmpfs bare /mnt 2>/dev/null; then
    printf 'run: this machine does not let root mount file systems (in a container: --privileged)\n' >&2
    exit 77
  fi
  make_system
  bare_root=$(mktemp -d "${TMPDIR:-/var/tmp}/gpusock-bare.XXXXXX")
  trap end_bare EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  fill_root
  # In the background, so that a signal ends this script at once; with the terminal's input and its Ctrl-C all the same.
  env -i "${environment[@]}" "${isolate[@]}" bash "$root/scripts/inside_bare_root.sh" "$bare_root" "$@" <&0 &
  inside=$!
  wait "$inside" || status=$?
  inside=''
  exit $status
}

# The end of unshare(1) is the end of all processes there, and of what they have mounted.
end_bare() {
  if [ -n "${inside:-}" ]; then
    kill -KILL "$inside" 2>/dev/null || true
    wait "$inside" 2>/dev/null || true
  fi
  if [ -n "$keep" ]; then say "kept: $bare_root"; else rm -rf --one-file-system "$bare_root"; fi
}

# Sets system: the minimal system, as an archive.
make_system() {
  local folder=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpusock/bare
  system=$folder/$release.tar
  [ -z "$(find "$system" -mtime -30 2>/dev/null)" ] || return 0
  mkdir -p "$folder"
  say "making a minimal Debian ($release) in $folder"
  print_sources | mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates,git --aptopt="$(print_apt_options)" \
    "$release" "$system.$$" - || { rm -f "$system.$$"; fail "mmdebstrap could not make a minimal Debian ($release)"; }
  mv "$system.$$" "$system"
}

# The Debian mirrors that apt uses on this machine. All of Debian's releases are on each.
print_sources() {
  local from='' mirror security
  from=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null) || true
  mirror=$(awk '$1 == "Debian" && $2 == "Debian" && $3 == "main" {print $4; exit}' <<<"$from")
  security=$(awk '$1 == "Debian" && $2 == "Debian-Security" && $3 == "main" {print $4; exit}' <<<"$from")
  printf 'deb %s %s main\n' "${mirror:=http://deb.debian.org/debian}" "$release" "$mirror" "$release-updates" \
    "${security:-http://deb.debian.org/debian-security}" "$release-security"
}

# How apt reaches them: proxies and the like. What else apt is told on this machine may name programs that are not there.
print_apt_options() { apt-config dump Acquire | grep -vE '^Acquire(::(IndexTargets|Changelogs|CompressionTypes|cdrom).*)? ' || true; }

# copy_project FOLDER: the last commit, or where git knows none (a downloaded archive, another user's checkout) all but what was built.
copy_project() {
  if git rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    [ -z "$(git status --porcelain)" ] || say "bare: the last commit runs there; what is not committed does not"
    git clone --quiet "$root" "$1" 2>/dev/null || fail "git could not clone $root"
  else
    say "bare: git knows no commit here; all files but build/ and out/ run there"
    mkdir -p "$1"
    tar -c --exclude=./build --exclude=./out --exclude=./bundle -C "$root" . | tar -x --no-same-owner -C "$1"
  fi
}

bare_cache=/root/.cache/ccache
clone=/root/gpusock
[ -z "${CCACHE_DIR:-}" ] || clone=$root

# Unpacks the system, copies the project, and sets environment: what of this machine's holds there.
fill_root() {
  local name
  chmod 755 "$bare_root"
  tar -xf "$system" -C "$bare_root"
  print_sources >"$bare_root/etc/apt/sources.list"
  print_apt_options >"$bare_root/etc/apt/apt.conf.d/99gpusock-bare"
  cp -L /etc/resolv.conf /etc/hosts "$bare_root/etc/"
  copy_project "$bare_root$clone"
  environment=("CLONE=$clone" HOME=/root "TERM=${TERM:-dumb}" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  if [ -n "${CCACHE_DIR:-}" ]; then
    mkdir -p "$CCACHE_DIR" "$bare_root$bare_cache"
    environment+=("SHARED_CACHE=$(realpath "$CCACHE_DIR")" "CCACHE_DIR=$bare_cache" "CCACHE_BASEDIR=$root" CCACHE_NOHASHDIR=1)
  fi
  for name in CI http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || environment+=("$name=${!name}")
  done
}
