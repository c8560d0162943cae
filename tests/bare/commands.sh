#!/usr/bin/env bash
# commands.sh [--quick | --steps A,B,...]: starts every command of the table in docs/commands.md on a machine where nothing was installed:
#
#   ./run bare bash tests/bare/commands.sh --quick
#
# Commands that need few packages come first, so that each is tried with what it installs by itself. --quick is for CI: what takes seconds,
# and a bundle. Not run inside: ./run bare (it is how this runs), ./run prove, which runs this, and ./run coverage, which needs as long as all
# of these and which ./run prove runs outside.
#
# Exit status: 0 all did what they should, 1 not, 2 misuse.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/common.sh
. scripts/steps.sh

# Name, seconds at most; with "quick", those that CI runs.
table() {
  cat <<'TABLE'
no-gpu      60 quick
packages   300 quick
docs       600 quick
cluster    300 quick
bench     1800
demo      1800
test      5400
bundle    1800 quick
unbuilt    600 quick
package   2400
wheel     3600
tidy      3600
check      900
soak      1800
fuzz      3600
rdma-test 3600
TABLE
}

# Without a GPU there is nothing to check, and nothing is installed to find that out.
try_no-gpu() {
  local before status=0 said
  before=$(dpkg-query -W | wc -l)
  said=$(./run gpu-check 2>&1) || status=$?
  echo "$said"
  [ $status -eq 77 ] && grep -q 'no NVIDIA GPU here' <<<"$said" && [ "$(dpkg-query -W | wc -l)" -eq "$before" ]
}
# Each package that a command would install is there in this release.
try_packages() (
  . scripts/packages.sh
  local list package missing=()
  update_packages
  for list in $(compgen -A variable | grep '_packages$'); do
    declare -n names=$list
    for package in "${names[@]}"; do
      [ -n "$(apt-cache --quiet=2 show "$package" 2>/dev/null)" ] || missing+=("$package ($list)")
    done
  done
  [ ${#missing[@]} -eq 0 ] || { echo "this release has no ${missing[*]}"; return 1; }
)
try_docs() { ./run docs && [ -s out/docs/html/index.html ]; }
try_cluster() { ./run cluster 2 -- sh -c 'ip address show | grep -F 10.78.0.'; } # 77 where no namespaces can be made, with the reason
try_bench() { ./run bench lat --link p2p --size 64 --between threads --repeat 1; }
# Also what it says: programs whose first kernel ended them with status 0 were not noticed once.
try_demo() {
  local said
  said=$(./run demo --epochs 1 --limit 1280)
  echo "$said"
  grep -q '^weights [0-9a-f]' <<<"$said"
}
try_test() { ./run test; }
try_bundle() { ./run bundle --device cpu /root/bundle && [ -x /root/bundle/bin/param_sync ]; }

# The bundle, in the system as it was before anything was installed.
try_unbuilt() {
  local system=/root/unbuilt
  [ -d /root/bundle ] || { echo "there is no bundle"; return 1; }
  mkdir -p $system
  tar -xf /root/system.tar -C $system
  cp -a /root/bundle $system/bundle
  mount -t proc proc $system/proc
  mount --rbind /dev $system/dev
  chroot $system /bin/bash -euxc '
    if command -v c++ cmake ninja nvcc readelf; then exit 1; fi
    cd /
    bundle/run demo --epochs 1 --limit 1280
    bundle/bin/gpusock-doctor || [ $? -eq 1 ]
    bundle/run bench lat --link p2p --size 64 --between threads --repeat 1
    status=0; bundle/run gpu-check || status=$?; [ $status -eq 77 ]
    bundle/run gpu-check --device cpu --steps p2p-echo,tcp-echo,compat
    bundle/run unpack'
}

# The packages, installed in the system as it was before anything was; there the guide's programs build and work, by pkg-config and by CMake.
try_package() {
  local system=/root/installed
  ./run package /root/packages
  mkdir -p $system
  tar -xf /root/system.tar -C $system
  cp -a /root/packages $system/packages
  mkdir -p $system/sources
  cp -a docs tests $system/sources
  cp /etc/resolv.conf $system/etc/resolv.conf
  mount -t proc proc $system/proc
  mount --rbind /dev $system/dev
  chroot $system /bin/bash -euxc '
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends /packages/gpusock-tools_*.deb
    if command -v c++; then exit 1; fi
    for program in param_sync gpusock-doctor gpusock-top gpusock-bench; do
      $program --version
      [ -s /usr/share/man/man1/$program.1.gz ]
    done
    gpusock-bench lat --link p2p --size 64 --between threads --repeat 1
    apt-get -qq install -y --no-install-recommends /packages/libgpusock-dev_*.deb g++ cmake ninja-build pkg-config python3
    python3 /sources/tests/docs/test_guide.py /sources - /work
    cmake -G Ninja -S /sources/tests/package/consumer -B /consumer
    cmake --build /consumer'
}

# The wheel, installed in the system as it was before anything was, with Python and what pip has downloaded: without compilers, and without
# our packages. PyTorch is 5 GB.
try_wheel() {
  local system=/root/installed-wheel
  ./run package --wheel /root/wheels
  build/python/environment-*/bin/python -m pip download -q --dest /root/wheels /root/wheels/gpusock-*.whl
  mkdir -p $system
  tar -xf /root/system.tar -C $system
  mv /root/wheels $system/wheels
  cp /etc/resolv.conf $system/etc/resolv.conf
  mount -t proc proc $system/proc
  mount --rbind /dev $system/dev
  chroot $system /bin/bash -euxc '
    export DEBIAN_FRONTEND=noninteractive PATH=/environment/bin:$PATH
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends python3-venv
    if command -v c++ cmake; then exit 1; fi
    python3 -m venv /environment
    pip install -q --no-index --find-links /wheels gpusock
    cat >sockets.py <<EOF
import gpusock, sys
with gpusock.Context() as context, context.listen("127.0.0.1:0,link=" + sys.argv[1]) as listener:
    here, (there, _) = context.connect(listener.address), listener.accept()
    here.sendall(b"sent")
    assert there.recv(4, 0x100) == b"sent"
    print(there.link)
EOF
    [ "$(python sockets.py tcp)" = tcp ]
    [ "$(python sockets.py p2p)" = p2p ]
    cat >sums.py <<EOF
import torch, torch.distributed as dist
dist.init_process_group("gpusock")
tensor = torch.full((1000,), dist.get_rank() + 1.0)
dist.all_reduce(tensor)
assert tensor.eq(3).all()
print("the sum is right")
EOF
    [ "$(torchrun --standalone --nproc-per-node 2 sums.py | grep -c "the sum is right")" -eq 2 ]'
}

try_tidy() { ./run tidy gpusock; }
try_check() { ./run check --base HEAD; }
try_soak() { ./run soak --minutes 1; }
try_fuzz() { ./run fuzz --seconds 1; }
try_rdma-test() { ./run rdma-test -- ibv_devices; } # what it installs, the kernel, the virtual machine and its devices

main() {
  local name seconds quick chosen=''
  case "${1:-}" in
    --run) "try_$2"; exit ;; # of the steps themselves
    --quick) chosen=,$(table | awk '$3 == "quick" { printf "%s,", $1 }') ;;
    --steps) chosen=,${2:-}, ;;
    '') chosen=,$(table | awk '{ printf "%s,", $1 }') ;;
    *) sed -n 2p "$0" >&2; exit 2 ;;
  esac
  # Kept as it is: a bundle is tried in it later. One file system, and without the project and what it builds.
  tar --one-file-system --exclude=./root --exclude="./${PWD#/}" -cf /root/system.tar -C / . 2>/dev/null
  out=/root/bare-commands # not in the project: that is as a clone is
  mkdir -p "$out/logs"
  : >"$out/results.txt"
  while read -r name seconds quick; do
    [[ $chosen = *",$name,"* ]] || continue
    if [ "$name" = test ]; then # the tests' last lines say what was skipped and why
      (set -o pipefail; step test "$seconds" bash "$0" --run test; cat "$out/logs/test.log")
    else
      step "$name" "$seconds" bash "$0" --run "$name"
    fi
    ! grep -qE "^FAIL[^ ]* .*  $name( |\$)" "$out/results.txt" || [ "$name" = test ] || tail -n 40 "$out/logs/$name.log"
  done < <(table)
  echo "figure: $(grep -c '^PASS' "$out/results.txt") commands, $(grep -c '^SKIP' "$out/results.txt") skipped"
  ! grep -q '^FAIL' "$out/results.txt" || fail "a command does not do what it should on a machine where nothing was installed"
}

main "$@"
