// One tiny kernel for each row of the ordering tables: the test beside this file reads the PTX that nvcc makes of them.
// Each kernel is named after the labels of the accesses that it must hold.
#include "socket_table/socket_table.hpp"
#include "tests/support/mlx5/send_queue.hpp"
#include "ringbuf/byte_ring.hpp"
#include "ringbuf/handle_queue.hpp"

#include "gpusock/device.cuh"
#include "tests/conformance/bus_litmus.cuh"  // litmus_*

using namespace gpusock;
using Word = std::uint64_t;

extern "C" __global__ void ring_P1(ringbuf::ByteProducer<> producer, Word bytes) { producer.commit(bytes); }

extern "C" __global__ void ring_P2(ringbuf::ByteProducer<> producer, Word* result) { *result = producer.writable(); }

extern "C" __global__ void ring_C1(ringbuf::ByteConsumer<> consumer, Word* result) { *result = consumer.readable(); }

extern "C" __global__ void ring_C2(ringbuf::ByteConsumer<> consumer, Word bytes) { consumer.release(bytes); }

extern "C" __global__ void queue_Q1(ringbuf::HandleProducer<> producer, int handle) { producer.push(handle); }

extern "C" __global__ void queue_Q2_Q3_Q4(ringbuf::HandleConsumer<> consumer, int* result) {
  *result = consumer.try_take();
}

extern "C" __global__ void queue_empty(ringbuf::HandleConsumer<> consumer, bool* result) { *result = consumer.empty(); }

extern "C" __global__ void table_T1_T7_T8(detail::Side side, Socket socket) {
  detail::write_request(side, socket, side.slots[table::slot_of(socket)], table::generation_of(socket),
                        table::kRequestOpen);
}

extern "C" __global__ void table_T6_T4(detail::Side side, Word* result) {
  *result = detail::load_status(side, 0).pack();
}

extern "C" __global__ void table_T6(detail::Side side, int* result) { *result = detail::canceled(side); }

extern "C" __global__ void slot_enter_leave(detail::Side side, Socket socket, Word* result) {
  table::CallerSlot* slot = detail::enter(side, socket);
  *result = slot != nullptr;
  if (slot != nullptr) detail::leave(side, socket, *slot);
}

extern "C" __global__ void slot_close(detail::Side side, Socket socket, int* result) {
  *result = detail::close_one(side, socket);
}

extern "C" __global__ void sets_W1_T7_T8(detail::Side side, PollSet set, int* result) {
  *result = detail::wake_one_set(side, set);
}

extern "C" __global__ void sets_W2(detail::Side side, PollSet set, Word* result) {
  *result = detail::count_wakes(side, set, side.sets->callers[0], false);
}

extern "C" __global__ void records_T10_T11(detail::Side side, table::RecordSender* records) {
  detail::lock_records(side, *records);
  detail::unlock_records(*records);
}

extern "C" __global__ void nic_G1_G2(rdma::mlx5::SendQueue queue, rdma::mlx5::Write write, int* result) {
  *result = queue.append(write, true);
  queue.ring();
}

extern "C" __global__ void nic_G3_G4(rdma::mlx5::CompletionQueue queue, rdma::mlx5::Completion* completion,
                                     int* result) {
  *result = queue.poll(*completion);
}
