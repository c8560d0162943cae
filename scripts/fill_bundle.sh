#!/usr/bin/env bash
# fill_bundle.sh TO BUILD_FOLDER PRESET [part|all|none]: makes the folder TO from what is built in BUILD_FOLDER, with so much of the images that
# the demo trains on (see ./run bundle).
set -euo pipefail
[ $# -eq 3 ] || [ $# -eq 4 ] || { sed -n 2,3p "$0" >&2; exit 2; }
to=$1 from=$2 preset=$3 data=${4:-part}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/common.sh
. scripts/gpu_machine.sh
. scripts/bundle_programs.sh

images=/usr/share/datasets/fashion-mnist
part_train=15000 part_test=5000

# Programs are linked to look for libraries in ../lib beside their folder (see GpusockBuild.cmake).
copy_program() {
  install -m 755 "$1" "$2/"
  strip "$2/$(basename "$1")"
}

# Everything but glibc and the GPU's driver, which belong to the machine.
copy_libraries() {
  local library
  while read -r library; do
    install -m 644 "$library" "$to/lib/"
    strip --strip-unneeded "$to/lib/$(basename "$library")"
  done < <(ldd "$to"/bin/* "$to"/tests/* 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|nss_[a-z]*|cuda|nvidia-[a-z]*))\.so[.0-9]*$')
}

# cut FILE HEADER ITEM COUNT: the first COUNT items, ITEM bytes each, of an IDX file that has HEADER bytes before them. The second word of the
# header is how many there are.
cut() (
  set +o pipefail # what has been read enough of is no failure
  local count
  printf -v count '\\x%02x\\x%02x\\x%02x\\x%02x' $(($4 >> 24 & 255)) $(($4 >> 16 & 255)) $(($4 >> 8 & 255)) $(($4 & 255))
  {
    zcat "$images/$1.gz" | head -c 4
    printf '%b' "$count"
    zcat "$images/$1.gz" | head -c $(($2 + $3 * $4)) | tail -c +9
  } | gzip -6n >"$to/data/fashion-mnist/$1.gz"
)

copy_data() {
  mkdir -p "$to/data/fashion-mnist"
  case "$data" in
    all) install -m 644 "$images"/*.gz "$to/data/fashion-mnist/" ;;
    part)
      cut train-images-idx3-ubyte 16 784 $part_train
      cut train-labels-idx1-ubyte 8 1 $part_train
      cut t10k-images-idx3-ubyte 16 784 $part_test
      cut t10k-labels-idx1-ubyte 8 1 $part_test ;;
    none) rmdir "$to/data/fashion-mnist" ;;
    *) fail "data: part, all or none, not \"$data\"" ;;
  esac
}

# What the programs were built with: gpu-check compares it with the driver.
note_cuda() {
  local compiler
  compiler=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$from/CMakeCache.txt")
  printf 'toolkit %s\n' "$("$compiler" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
  printf 'code %s\ntests %s\n' "$(code_of "$from" code)" "$(code_of "$from" tests)"
}

rm -rf "$to"
mkdir -p "$to"/{bin,tests,lib,data,scripts}
while read -r program; do
  [[ " ${bundle_programs[*]} ${bundle_seldom[*]} " != *" $(basename "$program") "* ]] || copy_program "$program" "$to/bin"
done < <(programs_in "$from"/{apps,examples,microbench,gpusock})
while read -r program; do
  [[ " ${bundle_tests[*]} ${bundle_verbs_tests[*]} " != *" $(basename "$program") "* ]] || copy_program "$program" "$to/tests"
done < <(programs_in "$from/tests")
copy_libraries
copy_data
install -m 644 tools/schedule_lab/figures/plot.gp "$to/data/"
install -m 644 -D tests/integration/server.py "$to/tests/integration/server.py"
install -m 644 -D tests/integration/echo/test_echo.py "$to/tests/integration/echo/test_echo.py"
tar -C "$to" --owner=0 --group=0 -czf "$to/packed.tar.gz" "${bundle_seldom[@]/#/bin/}" tests
rm -rf "${bundle_seldom[@]/#/$to/bin/}" "$to/tests"
install -m 755 run "$to/run"
install -m 644 scripts/*.sh scripts/bench_page.py "$to/scripts/"
install -m 644 LICENSE README.md "$to/"
project_commit >"$to/BUNDLE"
echo "$preset" >"$to/BUNDLE.preset"
[ "$preset" != cuda ] || note_cuda >"$to/BUNDLE.cuda"
