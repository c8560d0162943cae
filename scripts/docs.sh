# ./run docs: the API reference, from the headers' comments.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "docs takes no arguments"
  needs_sources docs
  require_packages "${docs_packages[@]}"
  mkdir -p out # doxygen makes one folder, not two
  doxygen docs/api/Doxyfile || fail "the reference has gaps or errors, named above"
  say "reference: out/docs/html/index.html"
}
