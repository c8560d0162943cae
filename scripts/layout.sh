# The layout of sources, by .clang-format; sourced by ./run tidy and ./run check.

# Versions of clang-format differ in a few lines, so it is always this one. Some systems do not have it; CI's has.
format_tool=clang-format-14

# check_layout FILES...: an error if one of them is not laid out as .clang-format says.
check_layout() {
  [ $# -gt 0 ] || return 0
  if ! command -v $format_tool >/dev/null; then
    if [ -z "$(apt-cache madison $format_tool 2>/dev/null)" ]; then
      say "$format_tool is not offered here: the layout of the sources was not checked"
      return 0
    fi
    require_packages $format_tool
  fi
  $format_tool --dry-run -Werror "$@" || fail "not laid out as .clang-format says: $format_tool -i FILE fixes it"
  say "$format_tool: $# files, 0 findings"
}

# Every source of this folder, a line each.
list_sources() {
  find "$root" -name build -prune -o -name out -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\|inl\)' -print
}
