# Shared by the commands of ./run; sourced in the project's folder. A bundle has the same scripts, but no sources.

say() { printf '== %s\n' "$*"; }
fail() { printf 'run: %s\n' "$*" >&2; exit 1; }
misuse() { printf 'run: %s (see ./run --help)\n' "$*" >&2; exit 2; }

# A bundle carries programs and no sources.
in_bundle() { [ -f BUNDLE ]; }
needs_sources() { ! in_bundle || fail "$1 needs the sources; this is a bundle of built programs"; }

# The nvcc to use, printed, or status 1 where there is none.
find_nvcc() {
  if [ -n "${CUDACXX:-}" ]; then command -v "$CUDACXX"
  elif command -v nvcc; then return 0
  elif [ -x /usr/local/cuda/bin/nvcc ]; then echo /usr/local/cuda/bin/nvcc
  else return 1; fi
}

# A driver that has failed may never answer. (Not `grep -q`: it leaves before nvidia-smi has named the second GPU, which then fails.)
have_gpu() { command -v nvidia-smi >/dev/null && timeout 30 nvidia-smi -L 2>/dev/null | grep '^GPU' >/dev/null; }

# The preset whose programs use what this machine has.
device_preset() {
  if have_gpu && find_nvcc >/dev/null; then echo cuda; else echo host; fi
}

# asks_for_help ARGS...
asks_for_help() {
  local argument
  for argument in "$@"; do
    case "$argument" in -h | --help) return 0 ;; esac
  done
  return 1
}

# require_device PRESET: can programs of this preset run their kernels here. Ends with 1 and the reason where they cannot.
require_device() {
  [ "$1" = cuda ] || return 0
  ! have_gpu && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null || return 0
  fail "these programs run their kernels on a GPU, and this machine has none (nvidia-smi -L lists none). For the CPU device make" \
    "another bundle where the sources are: ./run bundle --device cpu DIR"
}

# unpack_bundle: what is packed in it, once. In a folder beside it first: what is cut off leaves nothing half there.
unpack_bundle() {
  local unpacked=unpacked.$$
  [ -f packed.tar.gz ] && [ ! -d tests ] || return 0
  mkdir "$unpacked" 2>/dev/null || fail "cannot unpack packed.tar.gz: $root cannot be written; copy the bundle elsewhere"
  tar -xzf packed.tar.gz -C "$unpacked" || { rm -rf "$unpacked"; fail "cannot unpack packed.tar.gz"; }
  mv -f "$unpacked"/bin/* bin/
  mv -T "$unpacked/tests" tests 2>/dev/null || [ -d tests ] # another process was faster
  rm -rf "$unpacked"
}

# A path as the user meant it: from where ./run was called.
from_there() { case $1 in /*) echo "$1" ;; *) echo "$invoked_from/$1" ;; esac; }

jobs() { nproc 2>/dev/null || echo 2; }

# Times a phase and remembers it for print_phases.
phases=()
phase() {
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  "$@" || status=$?
  note_phase "$name" "$start" $status
  return $status
}
# note_phase NAME START STATUS
note_phase() {
  phases+=("$(printf '%5d s  %s%s' $((SECONDS - $2)) "$1" "$([ "$3" -eq 0 ] || echo '  FAILED')")")
}
print_phases() {
  say "time taken"
  printf '%s\n' "${phases[@]}"
  printf '%5d s  in all\n' "$SECONDS"
}

# The preset whose programs run on a kind of device: cpu or cuda.
preset_of() {
  case "$1" in
    cpu) echo host ;;
    cuda) echo cuda ;;
    *) misuse "--device is cpu or cuda, not \"$1\"" ;;
  esac
}

# Tests are configured once something asked for them (`with_tests=ON`), so that a demo needs no test packages; from then
# on they stay, so that going to and fro rebuilds nothing.
with_tests=OFF
tests_wanted=  # all or share; empty: as the build folder has it, else all
tests_option() {
  if grep -qs '^BUILD_TESTING:BOOL=ON' "$1/CMakeCache.txt" && [ -f "$1/build.ninja" ]; then echo ON; else echo "$with_tests"; fi
}
which_tests() {
  local before
  [ "$1" != build/clang ] || { echo all; return; } # that build shows that all of the tree compiles
  before=$(sed -n 's/^GPUSOCK_TESTS:STRING=//p' "$1/CMakeCache.txt" 2>/dev/null) || true
  echo "${tests_wanted:-${before:-all}}"
}

# Are warnings errors: where tests are built, and with the compilers that .ci has. Others may warn of more.
warnings_option() {
  local compiler=${CXX:-c++}
  case "$1" in
    asan | tsan | clang | fuzz) compiler=clang++ ;;
    cuda) echo OFF; return ;;  # nvcc's host half is the other presets'
  esac
  case "$(tests_option "build/$1") $("$compiler" --version 2>/dev/null | head -n 1) $("$compiler" -dumpversion 2>/dev/null)" in
    "ON "*clang*" 14."*) echo ON ;;
    "ON "*clang*) echo OFF ;;
    "ON "*" 12"*) echo ON ;;
    *) echo OFF ;;
  esac
}

# Where a preset is built, and options of that build alone (./run bundle --arch).
build_folder='' build_options=()

# configure PRESET: only where there is no build folder yet or the options changed; Ninja itself reruns CMake where a
# CMakeLists.txt changed.
configure() {
  local preset=$1 folder=${build_folder:-build/$1} options=("${build_options[@]}")
  options+=("-DBUILD_TESTING=$(tests_option "$folder")" "-DGPUSOCK_TESTS=$(which_tests "$folder")"
    "-DCMAKE_COMPILE_WARNING_AS_ERROR=$(warnings_option "$preset")")
  # Half the time where everything is built at once. Those who work on a file at a time call `cmake --preset host` themselves.
  # Each unit pays for the headers: where processors are few, one unit for each target is a tenth less work in all.
  options+=(-DCMAKE_UNITY_BUILD=ON)
  [ "$(jobs)" -gt 4 ] || options+=(-DCMAKE_UNITY_BUILD_BATCH_SIZE=0)
  case "$preset" in asan | tsan) options+=(-DGPUSOCK_PRECOMPILE=ON) ;; esac
  if command -v ccache >/dev/null; then
    # ccache does not run the preprocessor before each compilation then: the compiler's list of included files is enough.
    # It keeps what includes a precompiled header only if it may take the header's definitions for granted.
    export CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    [ "$preset" != cuda ] || options+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  if [ "$preset" = cuda ]; then
    find_nvcc >/dev/null || fail "the preset cuda needs nvcc: install the CUDA Toolkit 12.4 or newer, or set CUDACXX to its nvcc"
    options+=("-DCMAKE_CUDA_COMPILER=$(find_nvcc)")
  fi
  local wanted="${options[*]} CC=${CC:-} CXX=${CXX:-}"
  if [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/run.options" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  mkdir -p "$folder"
  # Shown only on failure: a successful configure says nothing that a user needs.
  if ! cmake --preset "$preset" -B "$folder" "${options[@]}" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    fail "configuring the preset $preset failed"
  fi
  grep '^-- gpusock' "$folder/configure.log" || true
  printf '%s' "$wanted" >"$folder/run.options"
}

# build PRESET [TARGETS...]: configures and builds; everything where no target is named.
build_priority=0 # as of nice(1)
build() {
  local preset=$1
  shift
  configure "$preset"
  nice -n "$build_priority" cmake --build "${build_folder:-build/$preset}" -j "$(jobs)" ${1:+--target "$@"}
}

# The programs under the given folders, a line each: what a test wrote into its own folder `work` is none of them. Names are
# pruned by themselves, as the path to this project may hold any of them.
programs_in() {
  local folder
  for folder in "$@"; do
    [ ! -d "$folder" ] || find "$folder" \( -name CMakeFiles -o -name work \) -prune -o -type f -executable \
      -exec sh -c '[ "$(head -c 4 "$1" | tail -c 3)" = ELF ]' _ {} \; -print
  done
}

# calls_of WHAT PRESET: which threads make a benchmark's calls. One thread shows how long a call takes; it takes many to fill a GPU's bus. On the CPU
# device more threads only take longer.
calls_of() {
  if [ "$1 $2" = 'bw cuda' ]; then echo '--group block --block-threads 512 --sockets 8'; else echo '--group thread'; fi
}

# Sets data_options: where param_sync finds the images.
read_data_options() {
  data_options=()
  ! in_bundle || data_options=(--data data/fashion-mnist)
}

# What the programs were built from.
project_commit() {
  if in_bundle; then cat BUNDLE
  elif git rev-parse HEAD >/dev/null 2>&1; then git describe --always --abbrev=40 --dirty --match ''
  else echo unknown; fi
}
