# ./run package [--device cpu|cuda] [DIR]: Debian packages of the library and the tools, in DIR (default: out/packages).
. scripts/packages.sh

main() {
  local to=$root/out/packages preset=host named=no
  while [ $# -gt 0 ]; do
    case "$1" in
      --device) [ $# -ge 2 ] || misuse "--device takes cpu or cuda"; preset=$(preset_of "$2"); shift 2 ;;
      --device=*) preset=$(preset_of "${1#--device=}"); shift ;;
      -*) misuse "package does not take \"$1\"" ;;
      *) [ $named = no ] || misuse "package takes one folder"; to=$(from_there "$1") named=yes; shift ;;
    esac
  done
  needs_sources package
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
