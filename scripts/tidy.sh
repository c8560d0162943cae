# ./run tidy [FOLDER...]: clang-tidy with the checks of .clang-tidy; what it finds is an error.
. scripts/packages.sh

main() {
  local folders=("$@") folder files=() start=$SECONDS
  [ ${#folders[@]} -gt 0 ] || folders=(host_proxy rdma gpusock)  # ringbuf is headers, which these include
  for folder in "${folders[@]}"; do [ -d "$folder" ] || misuse "there is no folder \"$folder\""; done
  needs_sources tidy
  require_packages "${build_packages[@]}" clang clang-tidy
  configure clang
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/clang/compile_commands.json |
    grep -E "^$root/($(IFS='|'; echo "${folders[*]}"))/" | sort -u)
  [ ${#files[@]} -gt 0 ] || fail "nothing to look at in: ${folders[*]}"
  printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet -p build/clang 2>"build/clang/tidy.log" ||
    fail "clang-tidy found something (see above)"
  say "clang-tidy: ${#files[@]} files, nothing found, $((SECONDS - start)) s"
}
