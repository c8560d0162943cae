# ./run docs: a site of all documents and the API reference, with a search. It opens from a file.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "docs takes no arguments"
  needs_sources docs
  require_packages "${docs_packages[@]}"
  mkdir -p out # doxygen makes one folder, not two
  doxygen docs/api/Doxyfile || fail "the reference has gaps or errors, named above"
  cp -r docs/studies out/docs/html/ # doxygen leaves pictures where they are
  say "documents and reference: out/docs/html/index.html (open it in a browser)"
}
