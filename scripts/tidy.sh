# ./run tidy [FOLDER...]: clang-tidy with the checks of .clang-tidy; what it finds is an error.
. scripts/packages.sh

main() {
  local folders=("$@") folder units=() start=$SECONDS
  [ ${#folders[@]} -gt 0 ] || folders=(host_proxy rdma gpusock)  # ringbuf is headers, which these include
  for folder in "${folders[@]}"; do [ -d "$folder" ] || misuse "there is no folder \"$folder\""; done
  needs_sources tidy
  require_packages "${build_packages[@]}" clang clang-tidy
  configure clang
  # As they are compiled, many sources in one: what they include takes most of the time. The including itself is not the matter.
  mapfile -t units < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/clang/compile_commands.json |
    grep -E "^$root/(build/clang/)?($(IFS='|'; echo "${folders[*]}"))/" | sort -u)
  [ ${#units[@]} -gt 0 ] || fail "nothing to look at in: ${folders[*]}"
  printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet --checks=-bugprone-suspicious-include -p build/clang \
    2>"build/clang/tidy.log" || fail "clang-tidy found something (see above)"
  say "clang-tidy: ${#units[@]} units of ${folders[*]}, 0 findings, $((SECONDS - start)) s"
}
