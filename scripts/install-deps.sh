# ./run install-deps: the packages of all commands.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "install-deps takes no arguments"
  needs_sources install-deps
  require_packages "${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}" "${rdma_packages[@]}"
  say "all packages are installed"
}
