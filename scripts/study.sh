# ./run study NAME|all: trains in many ways, draws a picture, and writes a page that says what it shows (studies/). NAME --from FILE: draws what an earlier run has found, and builds nothing.
. scripts/packages.sh

main() {
  needs_sources study
  require_packages "${build_packages[@]}" "${demo_packages[@]}" "${study_packages[@]}" python3
  if [ $# -eq 0 ]; then
    python3 -B studies/study.py
    return
  fi
  local programs
  programs=$(python3 -B studies/study.py --programs "$1") || return
  read -ra programs <<<"$programs"
  [[ " $* " == *" --from "* ]] || build host "${programs[@]}"
  mkdir -p out/studies
  python3 -B studies/study.py "$root/build/host" out/studies "$@"
}
