#!/usr/bin/env python3
"""Writes the copies of production sources that the simulation compiles in their place.

Each copy differs from its original in what SUBSTITUTIONS lists: bugs that the program can switch on by their numbers, and what
is one for a whole process in production and has to be one for each simulated process. A text that is not there exactly once is an
error: whoever changes such a line has to look at its substitution.
"""

import argparse
import pathlib
import re
import sys

PROCESS = 0  # not a bug: what makes simulated processes of one, and sizes that fit their small rings
# Where a bug is looked for, if not in plain seeds: in seeds that are denied each of their allocations or system calls, one at a time.
MEMORY, CALLS = "memory", "calls"
# number, file, text, what stands there instead, what the bug is[, where it is looked for]
SUBSTITUTIONS = [
    (PROCESS, "host_proxy/links/p2p/segment_exchange.cpp",
     "  static auto* offers = new LocalOffers;\n  return *offers;",
     "  return sim::for_process<LocalOffers>();", ""),
    (PROCESS, "host_proxy/links/fabric/maker.cpp",
     "Identity host_identity() {\n",
     "Identity host_identity() {\n  if (sim::process_key() != nullptr) {\n    Identity simulated{};\n    const std::uint64_t host = sim::host_key();\n"
     "    std::memcpy(simulated.data(), &host, sizeof host);\n    return simulated;\n  }\n", ""),
    (PROCESS, "host_proxy/links/fabric/discovery.hpp",
     "  void wait() const { over_.wait(false, std::memory_order_acquire); }\n",
     "  void wait() const { sim::wait_for_thread(over()); }\n", ""),
    (PROCESS, "gpusock/detail/net.inl",  # rings are small here, and so must be what goes past them
     "inline constexpr std::uint64_t kDirectBytes = 16 << 10;\n",
     "inline constexpr std::uint64_t kDirectBytes = 512;\n", ""),
    (1, "host_proxy/links/tcp/tcp_link.cpp",
     "    tx_.release(written);\n",
     "    tx_.release(sim::planted(1) ? wanted : written);\n",
     "tcp: a partial write counts as a whole one"),
    (2, "host_proxy/table/proxy_slots.cpp",
     "  set(slot, &table::ProxyWords::rx_arrived, rx_start);\n",
     "  if (!sim::planted(2)) set(slot, &table::ProxyWords::rx_arrived, rx_start);\n",
     "slots: the next connection's arrived word goes on from what was not read of the last one"),
    (3, "host_proxy/links/p2p/p2p_link.cpp",
     "control_.say_ended(Ref(*rings_.tx.host_committed()).load(ringbuf::kRelaxed))",
     "control_.say_ended(Ref(*(sim::planted(3) ? rings_.tx.host_consumed() : rings_.tx.host_committed())).load(ringbuf::kRelaxed))",
     "p2p: the end is said to be where the peer has read to"),
    (4, "host_proxy/links/control_channel.cpp",
     "    outbox_.erase(outbox_.begin(), outbox_.begin() + result);\n",
     "    outbox_.erase(outbox_.begin(), sim::planted(4) ? outbox_.end() : outbox_.begin() + result);\n",
     "control channel: the rest of a partial write is forgotten"),
    (5, "host_proxy/negotiation/handshake.cpp",
     "    outbox_.erase(0, static_cast<std::size_t>(result));\n",
     "    outbox_.erase(0, sim::planted(5) ? outbox_.size() : static_cast<std::size_t>(result));\n",
     "handshake: the rest of a partial write is forgotten"),
    (6, "host_proxy/links/tcp/tcp_link.hpp",
     "bool waits_for_credit() const override { return rx_full_ && !discard_ && !failed_; }",
     "bool waits_for_credit() const override { return rx_full_ && !discard_ && !failed_ && !sim::planted(6); }",
     "tcp: a full ring does not ask to be woken for credit"),
    (7, "host_proxy/proxy/proxy.cpp",
     "      if (Listener* listener = slots_[accept_queue_of_[slot]].listener) listener->remove_pending();\n",
     "      if (Listener* listener = slots_[accept_queue_of_[slot]].listener; listener && !sim::planted(7)) listener->remove_pending();\n",
     "listeners: an accepted connection stays in the backlog"),
    (8, "gpusock/detail/sockets.cuh",
     "  if (table::users_in(before) == 0) request_close(side, socket, *slot, shut);\n",
     "  if (table::users_in(before) == 0 || sim::planted(8)) request_close(side, socket, *slot, shut);\n",
     "close: the slot is given back while a call still uses it"),
    (9, "gpusock/detail/sockets.cuh",
     "    const auto [arrived, ended] = look_at_rx(side, socket, slot, status, least);\n",
     "    const auto early = look_at_rx(side, socket, slot, sim::planted(9) ? Status{} : status, least);\n"
     "    const auto late = sim::planted(9) ? load_status(side, table::slot_of(socket)) : status;\n"
     "    const bool ended = sim::planted(9) ? (late.flags & table::kStatusEnded) != 0 || early.ended : early.ended;\n"
     "    const std::uint64_t arrived = early.bytes;\n",
     "recv: the status is looked at behind the ring, so the end may come before the last bytes"),
    (10, "gpusock/detail/records.inl",
     "  for (std::uint32_t i = records.first; i != records.next && (records.done >> i % kClaims & 1) != 0; ++i) {\n",
     "  for (std::uint32_t i = records.first; i != records.next && ((records.done >> i % kClaims & 1) != 0 || sim::planted(10)); ++i) {\n",
     "records: one that is complete publishes those before it that are not"),
    (11, "gpusock/detail/side.cuh",
     "    } else if (deadline_.passed_at(now_ns)) {",
     "    } else if (deadline_.passed_at(now_ns) && !(sim::planted(11) && turns_ < 64)) {",
     "waits: a deadline is looked at only after some turns"),
    (12, "host_proxy/links/fabric/transport.cpp",
     "  for (; fragments_completed_ != fragments_sent_ && (busy_ >> fragments_completed_ % kWindow & 1) == 0; ++fragments_completed_)",
     "  for (; fragments_completed_ != fragments_sent_ && ((busy_ >> fragments_completed_ % kWindow & 1) == 0 || sim::planted(12)); ++fragments_completed_)",
     "fabric: ring space is given back while the fabric still reads it"),
    (13, "host_proxy/links/fabric/transport.cpp",
     "  const std::uint64_t number = fragments_taken_ + ((data.sequence - fragments_taken_) & (kWindow - 1));\n",
     "  const std::uint64_t number = fragments_taken_ + ((data.sequence - fragments_taken_) & (kWindow - 1));\n"
     "  if (sim::planted(13)) {\n    lengths_[fragments_taken_ % kWindow] = data.bytes;\n    take_fragments();\n    note_news();\n    return;\n  }\n",
     "fabric: fragments are taken in the order in which they arrive"),
    (14, "host_proxy/links/p2p/segment_exchange.cpp",
     "    const bool leaves = serve(visitor) || --visitor.turns_left == 0;\n",
     "    const bool leaves = serve(visitor) || sim::planted(14) || --visitor.turns_left == 0;\n",
     "p2p: who comes for its memory and has not said yet which is sent away"),
    (15, "host_proxy/proxy/proxy.cpp",
     "    if (connection.closed()) slots_.release(connection.slot());\n",
     "    if (connection.closed() || sim::planted(15)) slots_.release(connection.slot());\n",
     "slots: one whose connection failed is given back before its caller has closed it"),
    (16, "host_proxy/links/fabric/transport.cpp",
     "fragments_sent_ - fragments_acknowledged_ < kFragmentsMax &&",
     "fragments_sent_ - fragments_acknowledged_ < kFragmentsMax + (sim::planted(16) ? 1 : 0) &&",
     "fabric: one fragment more is sent than may be"),
    (17, "host_proxy/proxy/proxy.cpp",
     "    if (now_ns >= connection->deadline_ns()) {\n",
     "    if (now_ns >= connection->deadline_ns() && !sim::planted(17)) {\n",
     "proxy: connections that nobody hears from do not expire"),
    (18, "host_proxy/links/fabric/peer_endpoint.cpp",
     "bool PeerEndpoint::may_sleep() { return refused_.empty() && ",
     "bool PeerEndpoint::may_sleep() { return (refused_.empty() || sim::planted(18)) && ",
     "fabric: the proxy sleeps although a write was refused (found by the simulation)"),
    (19, "host_proxy/proxy/connection.cpp",
     "  if (link_ != nullptr && stream_hint_ != nullptr && !link_->finished()) stream_hint_->reset_on_close();\n",
     "  if (link_ != nullptr && stream_hint_ != nullptr && !link_->finished() && !sim::planted(19)) stream_hint_->reset_on_close();\n",
     "connection: what was not delivered ends as if it had been"),
    (20, "gpusock/detail/net.inl",
     "  if (entered) leave(at, socket, *slot);\n  return error != 0 ? error : static_cast<std::int64_t>(done);\n",
     "  if (entered && !(sim::planted(20) && error != 0)) leave(at, socket, *slot);\n"
     "  return error != 0 ? error : static_cast<std::int64_t>(done);\n",
     "recv: a call that fails stays counted in"),
    (21, "host_proxy/links/mirrored_link.cpp",
     "if (end_wanted_ && !end_sent_ && out_.idle()) {",
     "if (end_wanted_ && !end_sent_ && (out_.idle() || sim::planted(21))) {",
     "device rings: a stream ends before its last bytes were copied"),
    (22, "host_proxy/links/fabric/maker.cpp",
     "  for (ReadySink* sink : std::exchange(waiting_, {})) sink->on_ready();\n",
     "  for (ReadySink* sink : std::exchange(waiting_, {})) {\n    if (!sim::planted(22)) sink->on_ready();\n  }\n",
     "fabric: who waits for what there is is not told"),
    (23, "host_proxy/memory/ring_mirror.cpp",
     "  while (error_ == 0 && count_ != 0 && !pending_[0].copying) {\n",
     "  while (error_ == 0 && count_ != 0 && (!pending_[0].copying || sim::planted(23))) {\n",
     "device rings: bytes are there before they were copied"),
    (24, "host_proxy/links/verbs/transport.cpp",
     "    if (static_cast<std::int32_t>(parts_.pair->completed() - oldest.request) < 0) break;\n",
     "    if (static_cast<std::int32_t>(parts_.pair->completed() - oldest.request) < 0 && !sim::planted(24)) break;\n",
     "verbs: ring space is given back while the NIC still reads it"),
    (25, "host_proxy/links/one_sided_link.cpp",
     "  const std::uint64_t room = peer_ring - (sent - transport_->peer_consumed());\n",
     "  const std::uint64_t room = peer_ring - (sent - transport_->peer_consumed()) + (sim::planted(25) ? 64 : 0);\n",
     "one-sided: more is written than the peer has granted"),
    (26, "host_proxy/links/one_sided_link.cpp",
     "         (transport_->is_silent() || granted < rx_.memory.capacity / 2);\n",
     "         ((transport_->is_silent() && !sim::planted(26)) || granted < rx_.memory.capacity / 2);\n",
     "verbs: a proxy that sleeps before anything has come is not woken for credit (found by the simulation)"),
    (27, "host_proxy/links/verbs/transport.cpp",
     "return on_device ? parts_.segment->platform().flush_nic_writes() : 0;",
     "return on_device && !sim::planted(27) ? parts_.segment->platform().flush_nic_writes() : 0;",
     "device rings: what the NIC wrote is passed on before it is flushed"),
    (28, "host_proxy/links/mirrored_link.cpp",
     "(out_.busy() || in_.busy() || polls_ || link_->watches_memory())",
     "(out_.busy() || (in_.busy() && !sim::planted(28)) || polls_ || link_->watches_memory())",
     "device rings: the proxy sleeps while what has arrived is copied"),
    (29, "host_proxy/links/tcp/tcp_link.cpp",
     "!stream_->readable || has_unread()) return 0;",
     "!stream_->readable || (has_unread() && !sim::planted(29))) return 0;",
     "tcp: recv past the ring overtakes what is in it"),
    (30, "host_proxy/links/p2p/unix_socket.hpp",
     "  return bytes == 0 ? uninterrupted(receive) : bytes;\n",
     "  return bytes == 0 && !sim::planted(30) ? uninterrupted(receive) : bytes;\n",
     "p2p: a 0 from a Unix socket whose peer has closed is taken for the end although a message is there"),
    (31, "host_proxy/links/tcp/tcp_link.cpp",
     "  events_.on_sending_failed(error);\n",
     "  if (!sim::planted(31)) events_.on_sending_failed(error);\n",
     "tcp: senders hear of a broken connection only from its reading side, which may stand still"),
    (32, "host_proxy/proxy/connection.cpp",
     "  if (listener_ == nullptr && is_same_address(",
     "  if (listener_ == nullptr && !sim::planted(32) && is_same_address(",
     "connect: a socket that is connected to itself is taken for a connection"),
    (33, "host_proxy/memory/segment.cpp",
     "    auto segment = std::make_shared<Segment>(platform_, std::move(descriptor), ring_bytes, placement_);\n",
     "    const int lost = sim::planted(33) ? descriptor.release() : -1;\n"
     "    const auto room = std::make_unique<std::byte>();\n"
     "    if (lost >= 0) descriptor.reset(lost);\n"
     "    auto segment = std::make_shared<Segment>(platform_, std::move(descriptor), ring_bytes, placement_);\n",
     "shortage: a descriptor that was received is lost where there is no memory for its segment", MEMORY),
    (34, "host_proxy/proxy/connection.cpp",
     "asked_.is_plain_tcp() && link_->refuse_input())",
     "asked_.is_plain_tcp() && !sim::planted(34) && link_->refuse_input())",
     "tcp: a socket that is closed with unread input ends in order"),
    (35, "host_proxy/links/tcp/tcp_link.cpp",
     "  if (arrived && refuses_input_) reset_unread();\n",
     "  if (arrived && refuses_input_ && !sim::planted(35)) reset_unread();\n",
     "tcp: input that the system has when its socket is closed is dropped, and the end is in order"),
    (36, "host_proxy/links/p2p/segment_exchange.cpp",
     "  const bool full = !connected && errno == EAGAIN;\n",
     "  const bool full = !connected && errno == EAGAIN && !sim::planted(36);\n",
     "p2p: a Unix socket whose backlog is full is taken for one of another host"),
    (37, "host_proxy/links/mirrored_link.hpp",
     "bool refuse_input() override { return link_->refuse_input(); }",
     "bool refuse_input() override { return !sim::planted(37) && link_->refuse_input(); }",
     "device rings: a plain TCP socket that is closed with unread input ends in order"),
    (38, "host_proxy/links/fabric/discovery.cpp",
     "    ask(begun, wanted);  // no thread could be started\n",
     "    if (!sim::planted(38)) ask(begun, wanted);\n",
     "shortage: where no thread is to be had, nobody asks what fabrics there are", CALLS),
    (39, "host_proxy/net/posix_network.cpp",
     "uninterrupted(call), readable)",
     "uninterrupted([&]() -> ssize_t {\n"
     "      const bool told = interest_.told;\n      interest_.told = false;\n"
     "      const ssize_t result = call();\n"
     "      if (result < 0 && errno == EAGAIN && told && sim::planted(39)) errno = ECONNRESET;\n"
     "      return result;\n    }), readable)",
     "tcp: the network says that there are bytes, there are none, and that is taken for a broken connection"),
    (PROCESS, "host_proxy/net/posix_network.cpp",
     "  ReadySink** sink = nullptr;\n",
     "  ReadySink** sink = nullptr;\n  bool told = false;  // for a bug\n", ""),
    (PROCESS, "host_proxy/net/posix_network.cpp",
     "    const Interest& interest = *static_cast<Interest*>(events[i].data.ptr);\n",
     "    Interest& interest = *static_cast<Interest*>(events[i].data.ptr);\n"
     "    interest.told |= (events[i].events & (EPOLLIN | EPOLLRDHUP)) != 0;\n", ""),
    (40, "host_proxy/proxy/listener.hpp",
     "    return acceptor_->accept();\n",
     "    auto stream = acceptor_->accept();\n"
     "    if (stream != nullptr && sim::planted(40) && !planted_seen_.insert(stream->peer().host_port()).second) stream.reset();\n"
     "    return stream;\n",
     "listeners: a client with an address that was used before is taken for the client of that time"),
    (PROCESS, "host_proxy/proxy/listener.hpp",
     "  std::int32_t pending_ = 0;\n",
     "  std::int32_t pending_ = 0;\n  std::set<std::string> planted_seen_;\n", ""),
    (PROCESS, "host_proxy/proxy/listener.hpp", "#include <memory>\n", "#include <memory>\n#include <set>\n#include <string>\n", ""),
    (41, "host_proxy/links/control_channel.cpp",
     "  if (failed_ || closed_ || peer_left() || !outbox_.empty()) return;\n  queue_notice(kProbe, 0);\n",
     "  if (failed_ || closed_ || peer_left() || !outbox_.empty() || sim::planted(41)) return;\n  queue_notice(kProbe, 0);\n",
     "control channel: nothing asks whether the network still carries anything"),
    (42, "host_proxy/proxy/poll_sets.hpp",
     "  bool waits_for_callers() const { return !busy_.empty(); }\n",
     "  bool waits_for_callers() const { return !busy_.empty() && !sim::planted(42); }\n",
     "poll sets: a proxy that sleeps is not woken once there is room for an entry"),
    (43, "host_proxy/links/verbs/device_rings.cpp",
     "  if (rings.platform().orders_nic_writes()) keys.word",
     "  if (rings.platform().orders_nic_writes() || sim::planted(43)) keys.word",
     "device rings: kernels poll what the NIC writes although its bytes are there only after a flush"),
    (44, "host_proxy/links/one_sided_link.cpp",
     "  if (callers_lead_) consumed = arrived;",
     "  if (callers_lead_ && !sim::planted(44)) consumed = arrived;",
     "device rings: kernels that are ahead of the word that the proxy reads are taken for a peer's lie"),
    (45, "ringbuf/handle_queue.hpp",
     "    typename Shared::template Ref<std::uint64_t>(bar_.entries[at]).store(entry, kRelaxed);  // relaxed: X1 does\n"
     "    bar_write<Shared>(bar_.published, position_);\n",
     "    if (sim::planted(45)) bar_write<Shared>(bar_.published, position_);\n"
     "    typename Shared::template Ref<std::uint64_t>(bar_.entries[at]).store(entry, kRelaxed);  // relaxed: X1 does\n"
     "    bar_write<Shared>(bar_.published, position_);\n",
     "queues in device memory: the position is written before its entry"),
    (46, "host_proxy/table/proxy_slots.cpp",
     "    bar_word = table_.bar_address(word);\n    if (bar_word == nullptr) return;  // a link's own word\n",
     "    bar_word = table_.bar_address(word);\n    if (bar_word == nullptr) return;  // a link's own word\n    if (sim::planted(46)) bar_word = nullptr;\n",
     "words in device memory: what a link frees and brings is not written there"),
    (47, "host_proxy/table/table_memory.cpp",
     "  if (std::uint64_t* const bar_abort = bar_address(abort_)) ringbuf::bar_write(bar_abort, 1);",
     "  if (std::uint64_t* const bar_abort = sim::planted(47) ? nullptr : bar_address(abort_)) ringbuf::bar_write(bar_abort, 1);",
     "words in device memory: who ends the context does not write it there"),
    (48, "gpusock/detail/side.cuh",
     "  const bool ends = side.table.statuses_are_on_device && canceled(side);",
     "  const bool ends = side.table.statuses_are_on_device && !sim::planted(48) && canceled(side);",
     "words in device memory: the end of the context is looked for in the status alone, which a stalled proxy does not write (found by the simulation)"),
    (49, "host_proxy/links/tcp/tcp_link.cpp",
     "    if (rest_bytes_ != 0) {\n",
     "    if (rest_bytes_ != 0 && !sim::planted(49)) {\n",
     "tcp: bytes in the ring overtake the rest of a send that passed it"),
    (50, "host_proxy/links/tcp/tcp_link.cpp",
     "  put_into_ring(data + whole, arrived - whole);\n",
     "  if (!sim::planted(50)) put_into_ring(data + whole, arrived - whole);\n",
     "tcp: the odd rest of what arrives past the ring is lost"),
    (PROCESS, "host_proxy/links/fabric/discovery.cpp",
     "  static auto* only = new Asked;  // never destroyed: its threads may outlive main\n  return *only;",
     "  return sim::for_process<Asked>();", ""),
    (PROCESS, "host_proxy/links/fabric/discovery.cpp",
     "    std::thread([begun, wanted] { ask_or_fail(begun, wanted); }).detach();\n",
     "    sim::start_thread([begun, wanted] { ask_or_fail(begun, wanted); });\n", ""),
]


def as_pattern(code):
    """A regular expression that finds `code` however its lines are broken."""
    return r"\s*".join(re.escape(token) for token in re.findall(r"\w+|[^\w\s]", code)) + (r"\s*" if code.endswith("\n") else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print the files that are written")
    options = parser.parse_args()
    files = sorted({entry[1] for entry in SUBSTITUTIONS})
    entries = [(*entry, "seeds")[:6] for entry in SUBSTITUTIONS]
    if options.list:
        print(";".join(files))
        return
    for name in files:
        path = options.source / name
        text = path.read_text()
        for number, file, before, after, _, _ in entries:
            if file != name:
                continue
            matches = list(re.finditer(as_pattern(before), text))
            if len(matches) != 1:
                sys.exit(f"plant_bugs.py: bug {number}: {name} has this {len(matches)} times, and not once:\n{before}")
            text = text[:matches[0].start()] + after + text[matches[0].end():]
        marker = "#pragma once\n"
        include = '#include "tests/support/sim/planted.hpp"\n'
        text = text.replace(marker, marker + include, 1) if marker in text else include + text
        write(options.out / name, text)
    bugs = sorted((entry[0], entry[4], entry[5]) for entry in entries if entry[0] != PROCESS)
    rows = "".join(f'  {{"{what}", BugShows::in_{where}}},\n' for _, what, where in bugs)
    write(options.out / "planted_bugs.cpp",
          '#include "tests/support/sim/planted.hpp"\n\nnamespace gpusock::sim {\nnamespace {\nconstexpr PlantedBug kBugs[] = {\n'
          + rows + "};\n}\nextern const int kPlantedBugs = sizeof kBugs / sizeof kBugs[0];\n"
          "const PlantedBug& planted_bug_of(int number) { return kBugs[number - 1]; }\n}\n")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


main()
