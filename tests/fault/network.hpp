#pragma once
// A network of this process's own, which can be cut.

namespace gpusock::fault {

/// Moves this process, and those it starts from now on, into a network that holds nothing but a loopback. Before any thread
/// starts. False, with the reason on stderr, where that is not allowed.
bool enter_own_network();

/// Is this process in a network of its own.
bool in_own_network();

/// Takes the loopback away from, or gives it back to, all of this network's connections.
void set_network_up(bool up);

}  // namespace gpusock::fault
