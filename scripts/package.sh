# ./run package [--device cpu|cuda] [DIR]: Debian packages of the library and the tools, in DIR (default: out/packages).
# ./run package --wheel [DIR]: there a wheel of the Python package, for the Python that PYTHON names.
. scripts/packages.sh
. scripts/python_wheel.sh

main() {
  local to=$root/out/packages preset='' kind=debian named=no
  while [ $# -gt 0 ]; do
    case "$1" in
      --device) [ $# -ge 2 ] || misuse "--device takes cpu or cuda"; preset=$(preset_of "$2"); shift 2 ;;
      --device=*) preset=$(preset_of "${1#--device=}"); shift ;;
      --wheel) kind=wheel; shift ;;
      -*) misuse "package does not take \"$1\"" ;;
      *) [ $named = no ] || misuse "package takes one folder"; to=$(from_there "$1") named=yes; shift ;;
    esac
  done
  needs_sources package
  if [ $kind = wheel ]; then
    [ -z "$preset" ] || misuse "a wheel is for the CPU device: package --wheel takes no --device"
    package_wheel "$to"
  else
    package_debian "${preset:-host}" "$to"
  fi
}

package_wheel() {
  local environment python_tag wheel wheel_build
  command -v dpkg-query >/dev/null || fail "wheels are made on Debian or Ubuntu: elsewhere, pip install --no-build-isolation ./python"
  require_packages "${build_packages[@]}" "${python_packages[@]}"
  make_python_environment
  build_wheel "$1"
  say "wheel of the Python package, for PyTorch $("$environment/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))') (that of $environment: delete this folder for a newer one):"
  ls "$wheel"
  say "to install it, and the PyTorch that it needs: pip install $(printf %q "$wheel")"
}

package_debian() {
  local preset=$1 to=$2
  command -v dpkg-query >/dev/null || fail "Debian packages are made on Debian or Ubuntu: elsewhere, cmake --install build/host --prefix DIR"
  require_packages "${build_packages[@]}" "${package_packages[@]}"
  build_options=(-DCMAKE_INSTALL_PREFIX=/usr)
  build_folder=build/package-$preset # with no tests in it: cpack installs what was built, and so all of it is built
  build "$preset" all package_documents
  mkdir -p "$to"
  rm -f "$to"/libgpusock-dev_*.deb "$to"/gpusock-tools_*.deb
  cpack --config "$build_folder/CPackConfig.cmake" -B "$build_folder/packages" >"$build_folder/cpack.log" 2>&1 ||
    { cat "$build_folder/cpack.log" >&2; fail "cpack failed"; }
  mv "$build_folder"/packages/*.deb "$to"
  say "packages for $([ "$preset" = cuda ] && echo 'GPUs and the CPU device' || echo 'the CPU device'):"
  ls "$to"/*.deb
  say "to install them: sudo apt-get install $to/*.deb"
}
