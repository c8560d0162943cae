#pragma once
// A network that can be cut: of this process's own, or the interface that GPUSOCK_TEST_NETDEV names and the loopback.

#include <string>

namespace gpusock::fault {

/// Moves this process, and those it starts from now on, into a network that holds nothing but a loopback, unless an
/// interface is named. Before any thread starts. False, with the reason on stderr, where that is not allowed.
bool enter_own_network();

/// Is there a network that may be cut.
bool can_cut_network();

/// Is it this process's own.
bool has_own_network();

/// May it be cut, and does TCP give its connections up within a second then.
bool can_lose_network();

/// True if a NIC, and not the operating system, carries the bytes of this link of a test.
bool has_nic(const std::string& link);

/// Takes the network away from, or gives it back to, all of its connections.
void set_network_up(bool up);

}  // namespace gpusock::fault
