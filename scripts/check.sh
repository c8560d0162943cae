# ./run check: what CI refuses, found in a minute: see check_help.
. scripts/packages.sh
. scripts/layout.sh

check_help() {
  cat <<'HELP'
usage: ./run check [--all] [--base REV] [--install-hook]

Checks what has changed since REV, in about a minute: the layout of sources (.clang-format), clang-tidy on files of the libraries, that each
header compiles by itself and each source by Clang, spelling, and the documents (links, commands, variables, words, what each folder may include). The documents are
always checked as a whole. A finding is an error.

  --base REV      default: where this branch left its upstream; without an upstream, HEAD: what is not committed
  --all           check the whole tree; CI does
  --install-hook  git runs `./run check --base HEAD` before each commit from now on
HELP
}

main() {
  local base='' all=no failed=()
  needs_sources check
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) check_help; return ;;
      --all) all=yes; shift ;;
      --base) [ $# -ge 2 ] || misuse "--base takes a commit"; base=$2; shift 2 ;;
      --base=*) base=${1#--base=}; shift ;;
      --install-hook) [ $# -eq 1 ] || misuse "--install-hook takes no other arguments"; install_hook; return ;;
      *) misuse "check does not take \"$1\"" ;;
    esac
  done
  require_packages "${build_packages[@]}" "${test_build_packages[@]}" "${lint_packages[@]}"
  list_files
  check_part "layout" check_layout "${sources[@]}"
  check_part "spelling" check_spelling
  check_part "documents" check_documents
  check_part "sources" check_sources
  [ ${#failed[@]} -eq 0 ] || fail "findings in: ${failed[*]}"
  say "no findings in ${#files[@]} files"
}

# check_part NAME COMMAND...: after findings in one part, the others still run.
check_part() {
  local start=$SECONDS status=0
  ("${@:2}") || status=$?
  [ $status -eq 0 ] || failed+=("$1")
  say "$1: $([ $status -eq 0 ] && echo 'no findings' || echo FINDINGS), $((SECONDS - start)) s"
}

# Sets files (those to look at), and sources among them.
list_files() {
  if [ $all = yes ]; then
    [ -z "$base" ] || misuse "--all and --base exclude each other"
    mapfile -t files < <(git ls-files)
  else
    base=${base:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)}
    git rev-parse --quiet --verify "$base^{commit}" >/dev/null || misuse "--base: there is no commit \"$base\""
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" --; git ls-files --others --exclude-standard)
  fi
  mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '\.(cpp|hpp|cu|cuh|inl)$' || true)
}

check_spelling() {
  local readable
  mapfile -t readable < <(printf '%s\n' "${files[@]}" | grep -E '\.(cpp|hpp|cu|cuh|inl|md|sh|py|txt|cmake)$' || true)
  [ ${#readable[@]} -eq 0 ] || codespell --quiet-level 3 --ignore-words tests/docs/spelling.txt "${readable[@]}"
}

check_documents() {
  local name status=0
  mkdir -p build
  for name in links layers architecture glossary variables; do
    python3 -B "tests/docs/test_$name.py" "$root" 2>"build/check_$name.log" || { status=1; cat "build/check_$name.log"; }
  done
  (cat docs/api/Doxyfile && echo OUTPUT_DIRECTORY=build/check_reference) | doxygen - >/dev/null 2>build/check_reference.log ||
    { status=1; cat build/check_reference.log; }
  return $status
}

check_sources() {
  [ ${#sources[@]} -gt 0 ] || return 0
  with_tests=ON
  tests_wanted=all
  configure clang
  if [ $all = no ]; then
    scripts/check_sources.py build/clang "${sources[@]}"
  else
    scripts/check_sources.py build/clang --headers-only "${sources[@]}" && ./run tidy
  fi
}

install_hook() {
  local hook
  hook=$(git rev-parse --git-path hooks)/pre-commit
  [ ! -e "$hook" ] || fail "$hook exists: call ./run check --base HEAD from there, or remove it"
  mkdir -p "$(dirname "$hook")"
  printf '#!/bin/sh\nexec ./run check --base HEAD\n' >"$hook"
  chmod +x "$hook"
  say "git runs ./run check before each commit (git commit --no-verify: without)"
}
