#!/usr/bin/env bash
# fill_bundle.sh TO BUILD_FOLDER PRESET: makes the folder TO from what is built in BUILD_FOLDER (see ./run bundle).
set -euo pipefail
[ $# -eq 3 ] || { sed -n 2p "$0" >&2; exit 2; }
to=$1 from=$2 preset=$3
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

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

rm -rf "$to"
mkdir -p "$to"/{bin,tests,lib,data/fashion-mnist,scripts}
while read -r program; do copy_program "$program" "$to/bin"; done < <(programs_in "$from"/{apps,examples,microbench,gpusock})
while read -r program; do copy_program "$program" "$to/tests"; done < <(programs_in "$from/tests")
copy_libraries
install -m 644 /usr/share/datasets/fashion-mnist/*.gz "$to/data/fashion-mnist/"
install -m 644 apps/param_sync/plot.gp "$to/data/"
install -m 644 -D tests/integration/server.py "$to/tests/integration/server.py"
install -m 644 -D tests/integration/echo/test_echo.py "$to/tests/integration/echo/test_echo.py"
install -m 755 run "$to/run"
install -m 644 scripts/*.sh "$to/scripts/"
install -m 644 LICENSE README.md "$to/"
project_commit >"$to/BUNDLE"
echo "$preset" >"$to/BUNDLE.preset"
