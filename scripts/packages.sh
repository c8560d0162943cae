# The Debian and Ubuntu packages that each command needs; sourced by the commands.

build_packages=(g++ cmake ninja-build pkg-config libboost-context-dev libcli11-dev nlohmann-json3-dev libfmt-dev
  libspdlog-dev libfabric-dev libibverbs-dev librdmacm-dev libssl-dev zlib1g-dev libcu++-dev)
demo_packages=(dataset-fashion-mnist gnuplot-nox)
bench_packages=(gnuplot-nox python3) # for the page of ./run bench
study_packages=(libisal-dev) # for Reed-Solomon codes of the study `paths`
check_packages=(dataset-fashion-mnist doxygen libgmock-dev libgtest-dev python3)
docs_packages=(doxygen)
coverage_packages=(gcovr)
package_packages=(dpkg-dev fakeroot file help2man)
python_packages=(python3-dev python3-venv) # PyTorch, and what builds wheels, come from pip
fuzz_packages=(clang libclang-rt-dev)
sanitizer_packages=("${fuzz_packages[@]}" lld)
lint_packages=(clang clang-tidy codespell doxygen git)
bare_packages=(debian-archive-keyring git mmdebstrap)
cluster_packages=(iproute2 util-linux)
rdma_packages=(busybox-static ibverbs-providers ibverbs-utils iproute2 perftest qemu-system-x86 xz-utils)
test_build_packages=(ccache help2man libgmock-dev libgtest-dev libisal-dev libpmix-dev libprotobuf-dev libpugixml-dev protobuf-compiler python3) # what tests are compiled with
test_packages=("${test_build_packages[@]}" "${docs_packages[@]}" "${cluster_packages[@]}" curl dataset-fashion-mnist
  gnuplot-nox libgloo-dev netcat-openbsd openmpi-bin python3-yaml redis-server wrk)

installed() { dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q 'ok installed'; }

# require_packages NAME...: installs what is missing, and says so first. Asks where there is somebody to answer (assume_yes=no, see ./run).
require_packages() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    command -v cmake >/dev/null && command -v ninja >/dev/null && return 0  # CMake names what else is missing
    fail "this is not a Debian or Ubuntu system: install what these packages hold, then run this again: $*"
  fi
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${#missing[@]} packages: ${missing[*]}"
  confirm_installation
  install_packages "${missing[@]}"
}

confirm_installation() {
  local answer
  [ "${assume_yes:-no}" = no ] && [ -t 0 ] && [ -t 1 ] || return 0
  read -r -p "Install them with apt-get? [Y/n] " answer || answer=n
  [[ $answer =~ ^([yY]|[yY]es)?$ ]] || fail "nothing was installed"
}

# Can packages be installed without a question for a password?
installs_silently() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }

# Sets apt: how this user calls apt-get.
find_apt() {
  local become=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "you are not root and there is no sudo; as root: apt-get $*"
    become=(sudo)
  fi
  apt=("${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
}

update_packages() {
  local apt
  find_apt update
  "${apt[@]}" update || fail "apt-get update failed"
}

install_packages() {
  local apt
  find_apt install "$@"
  "${apt[@]}" update || fail "apt-get update failed; the packages still missing: $*"
  "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install: $* (on Ubuntu some are in universe: sudo add-apt-repository universe)"
}
