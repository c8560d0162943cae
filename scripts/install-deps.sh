# ./run install-deps: the packages of all commands.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "install-deps takes no arguments"
  needs_sources install-deps
  local list packages=()
  for list in $(compgen -A variable | grep '_packages$'); do
    local -n names=$list
    packages+=("${names[@]}")
  done
  readarray -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  require_packages "${packages[@]}"
  say "all packages are installed"
}
