# What a GPU's machine is, and whether programs can run their kernels there; sourced by gpu-check.

# What the doctor says of this machine, in the file $1; false where it does not end.
ask_doctor() {
  local status=0
  timeout --kill-after=5 60 "$doctor" >"$1" 2>&1 </dev/null || status=$?
  [ $status -lt 124 ] # 1: there is something to fix, which the checks may do without
}

# What it has said, in the file $1, with each of its findings in a line: it wraps them.
findings() { sed ':a;N;$!ba;s/\n \{20\}\([^ >]\)/ \1/g' "$1"; }

# hold_gpus [FOLDER]: keeps the GPUs' device files open until this shell ends. Else the driver shuts a GPU down whenever no program uses it, and
# each step would wait until it is up again.
hold_gpus() {
  local file held
  for file in "${1:-/dev}"/nvidia[0-9]*; do
    [ ! -r "$file" ] || { exec {held}<"$file"; } 2>/dev/null || say "$file cannot be held open: programs may start slowly"
  done
}

# GPUs' compute capabilities, "90", a line each; the CUDA version of the driver, "13.0": from what the doctor has said.
capabilities() { findings "$1" | sed -n 's/.*GPU [0-9]*: .*, sm_\([0-9]*\).*/\1/p'; }
driver_cuda() { findings "$1" | sed -n 's/.*driver .*for CUDA \([0-9.]*[0-9]\).*/\1/p' | sed -n 1p; }

# What the programs were built with, "13.0"; empty where nobody knows.
toolkit_cuda() {
  if in_bundle; then of_bundle toolkit
  else "$(find_nvcc)" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; fi
}

# built_code code|tests: which GPUs' code programs and test programs hold: "sm_80 sm_90 compute_80".
built_code() {
  if in_bundle; then of_bundle "$1"
  else code_of build/cuda "$1"; fi
}
of_bundle() { sed -n "s/^$1 //p" BUNDLE.cuda 2>/dev/null || true; }

# code_of FOLDER code|tests: the same of what is built there.
code_of() {
  local architectures architecture words=''
  architectures=$(sed -n 's/^GPUSOCK_CUDA_ARCHITECTURES:[A-Z]*=//p' "$1/CMakeCache.txt" 2>/dev/null)
  if [ -z "$architectures" ]; then # see GpusockBuild.cmake and tests/CMakeLists.txt
    [ "$2" = tests ] && echo compute_80 || echo 'sm_80 sm_90 compute_80'
    return
  fi
  for architecture in ${architectures//;/ }; do
    case "$architecture" in
      *-real) words+=" sm_${architecture%-real}" ;;
      *-virtual) words+=" compute_${architecture%-virtual}" ;;
      [0-9]*) words+=" sm_$architecture compute_$architecture" ;;
    esac
  done
  echo "${words# }"
}

# older A B: is the version A before B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# why_not DRIVER TOOLKIT CAPABILITY CODE...: prints why a driver for CUDA version DRIVER cannot run, on such a GPU, programs that were built
# with the version TOOLKIT and hold such CODE; nothing where it can. A driver runs machine code made by any toolkit of its own major version
# or an older one, and translates PTX of toolkits that are not newer than itself.
why_not() {
  local driver=$1 toolkit=$2 capability=$3 code has_code=no ptx=''
  shift 3
  if [ "${driver%%.*}" -lt "${toolkit%%.*}" ]; then
    printf 'the driver is for CUDA %s, and the programs were built with CUDA %s: they need a driver for CUDA %s.0 or newer\n' \
      "$driver" "$toolkit" "${toolkit%%.*}"
    return
  fi
  for code in "$@"; do
    case "$code" in
      sm_*)
        code=${code#sm_} code=${code%[a-z]}
        [ "${code%?}" != "${capability%?}" ] || [ "$code" -gt "$capability" ] || has_code=yes ;;
      compute_*)
        code=${code#compute_} code=${code%[a-z]}
        [ "$code" -gt "$capability" ] || ptx=$code ;;
    esac
  done
  if [ $has_code = no ] && [ -z "$ptx" ]; then
    printf 'the GPU is sm_%s, and the programs hold code for %s alone: build for it (./run bundle --arch %s)\n' "$capability" "$*" "$capability"
  elif [ $has_code = no ] && older "$driver" "$toolkit"; then
    printf 'the driver is for CUDA %s: it cannot translate the PTX of CUDA %s, and the programs hold no machine code for sm_%s (%s)\n' \
      "$driver" "$toolkit" "$capability" "./run bundle --arch $capability makes some"
  fi
}

machine_facts() {
  date -u '+%Y-%m-%d %H:%M:%S UTC'
  printf 'commit: %s\n' "$(project_commit)"
  uname -srm
  grep -h '^PRETTY_NAME=' /etc/os-release || true
  if command -v nvidia-smi >/dev/null && [ "$device" = cuda ]; then
    local question
    for question in '-L' '--query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,compute_cap --format=csv' \
      '-q -d MEMORY,CLOCK,COMPUTE,ECC,PERFORMANCE' 'topo -m'; do
      # shellcheck disable=SC2086
      timeout 20 nvidia-smi $question || true
    done
  fi
  lscpu || true
  grep -E '^(MemTotal|MemAvailable)' /proc/meminfo
  printf 'processors for this process: %s, locked memory: %s kB\n' "$(jobs)" "$(ulimit -l)"
  if ! in_bundle && find_nvcc >/dev/null; then "$(find_nvcc)" --version; fi
}
