# Hosts that are network namespaces of this machine; sourced by the commands that run something on several hosts.
#
# All of a cluster lives in namespaces of its own (network, processes, mounts), which end with their first process: so nothing
# has a name outside, any number of clusters run side by side, and none leaves anything behind, however it ends.
. scripts/packages.sh

require_hosts() {
  in_bundle || require_packages "${cluster_packages[@]}"
  local tool
  for tool in ip tc unshare nsenter setsid; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || fail "there is no \"$tool\": install iproute2 and util-linux"
  done
}

# check_hosts NUMBER: may there be so many.
check_hosts() {
  [[ $1 =~ ^[1-9][0-9]{0,2}$ && $1 -le 200 ]] || misuse "the number of hosts is 1 to 200, not \"$1\""
}

# Sets isolate: how this user gets namespaces here. Ends with 77 where there is no way.
find_isolation() {
  local way said why='' spaces=(--net --mount --uts --ipc --pid --fork --kill-child --mount-proc)
  for way in root user chroot; do
    case $way in
      root) isolate=(unshare "${spaces[@]}") ;;
      user) isolate=(unshare --map-root-user "${spaces[@]}") ;;
      chroot) isolate=(unshare --mount --propagation=unchanged bash "$root/scripts/inside_own_root.sh" unshare "${spaces[@]}") ;;
    esac
    ! said=$("${isolate[@]}" true 2>&1) || return 0
    why+="${why:+; }$said"
  done
  printf 'run: this machine lets you make no network namespaces (%s): %s\n' "$why" "be root, or allow them (sysctl \
kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, --privileged in a container)" >&2
  exit 77
}

# run_on_hosts SIZE RATE DELAY COMMAND...: COMMAND on each of them; an empty RATE or DELAY leaves the links as they are. Its
# status is the first one that is not 0. The commands run where ./run was called, with nothing to read.
run_on_hosts() {
  local isolate control inside status=0
  require_hosts
  find_isolation
  export GPUSOCK_SECRET=${GPUSOCK_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
  # Inside, end of file on standard input means: end. It comes however this process ends. A signal of the terminal is for this
  # process alone (setsid), and none is ignored inside, as the shell would have it for what runs in the background.
  exec {control}> >(cd "$invoked_from" && exec setsid --wait env --default-signal=INT,QUIT "${isolate[@]}" \
    bash "$root/scripts/inside_hosts.sh" network "$@")
  inside=$!
  trap 'exec {control}>&-' INT TERM HUP
  wait "$inside" || status=$?
  while kill -0 "$inside" 2>/dev/null; do  # a signal has ended the wait
    status=0
    wait "$inside" || status=$?
  done
  trap - INT TERM HUP
  return $status
}
