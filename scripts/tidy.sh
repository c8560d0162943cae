# ./run tidy [FOLDER...]: checks the layout of every source (.clang-format), and the libraries with clang-tidy (.clang-tidy). A finding is
# an error.
. scripts/packages.sh

main() {
  local folders=("$@") folder units=() start=$SECONDS
  [ ${#folders[@]} -gt 0 ] || folders=(host_proxy rdma gpusock)  # ringbuf is headers, which these include
  for folder in "${folders[@]}"; do [ -d "$folder" ] || misuse "there is no folder \"$folder\""; done
  needs_sources tidy
  require_packages "${build_packages[@]}" clang clang-tidy
  check_format
  configure clang
  # As they are compiled, many sources in one: what they include takes most of the time. The including itself is not the matter.
  mapfile -t units < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/clang/compile_commands.json |
    grep -E "^$root/(build/clang/)?($(IFS='|'; echo "${folders[*]}"))/" | sort -u)
  [ ${#units[@]} -gt 0 ] || fail "nothing to look at in: ${folders[*]}"
  printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet --checks=-bugprone-suspicious-include -p build/clang \
    2>"build/clang/tidy.log" || fail "clang-tidy found something (see above)"
  say "clang-tidy: ${#units[@]} units of ${folders[*]}, 0 findings, $((SECONDS - start)) s"
}

# Versions of clang-format differ in a few lines, so it is always this one. Where the system does not offer it, CI's does.
check_format() {
  local sources tool=clang-format-14
  if ! command -v $tool >/dev/null; then
    if [ -z "$(apt-cache madison $tool 2>/dev/null)" ]; then
      say "$tool is not offered here: the layout of the sources was not checked"
      return 0
    fi
    require_packages $tool
  fi
  mapfile -t sources < <(list_sources)
  $tool --dry-run -Werror "${sources[@]}" || fail "not laid out as .clang-format says: $tool -i FILE fixes it"
  say "$tool: ${#sources[@]} files, 0 findings"
}

list_sources() {
  find "$root" -name build -prune -o -name out -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\|inl\)' -print
}
