# ./run tidy [FOLDER...]: checks the layout of every source (.clang-format), and the libraries with clang-tidy (.clang-tidy). A finding is
# an error.
. scripts/packages.sh
. scripts/layout.sh

main() {
  local folders=("$@") folder units=() start=$SECONDS
  [ ${#folders[@]} -gt 0 ] || folders=(plain_types host_proxy rdma gpusock)  # ringbuf is headers, which these include
  for folder in "${folders[@]}"; do [ -d "$folder" ] || misuse "there is no folder \"$folder\""; done
  needs_sources tidy
  require_packages "${build_packages[@]}" clang clang-tidy
  local sources
  mapfile -t sources < <(list_sources)
  check_layout "${sources[@]}"
  configure clang
  # As they are compiled, many sources in one: what they include takes most of the time. The including itself is not the matter.
  mapfile -t units < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/clang/compile_commands.json |
    grep -E "^$root/(build/clang/)?($(IFS='|'; echo "${folders[*]}"))/" | sort -u)
  [ ${#units[@]} -gt 0 ] || fail "nothing to look at in: ${folders[*]}"
  printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet --checks=-bugprone-suspicious-include -p build/clang \
    2>"build/clang/tidy.log" || fail "clang-tidy found something (see above)"
  say "clang-tidy: ${#units[@]} units of ${folders[*]}, 0 findings, $((SECONDS - start)) s"
}
