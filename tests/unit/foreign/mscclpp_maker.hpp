#pragma once
// MSCCL++'s JSON, made piece by piece.
#include <nlohmann/json.hpp>

#include <vector>

namespace foreign_test {

using Json = nlohmann::json;

/// An operation on channel 0 of the thread block.
Json on_channel(const char* name, const char* type = "memory");
/// Places of an operation: in a buffer of its rank, or in a remote buffer.
Json own(const char* type, int index, int size = 1);
Json remote(int id, int index, int size = 1);
Json move(const char* name, const std::vector<Json>& sources, const std::vector<Json>& targets,
          const char* type = "memory");
inline const Json kNop = {{"name", "nop"}};

/// A plan of two ranks with a thread block each, which can signal the other, and write into its three buffers.
Json pair(const char* collective, int input, int output, int scratch, const std::vector<Json>& first,
          const std::vector<Json>& second, const char* type = "memory");

/// A handshake before the operations, and one after.
std::vector<Json> surrounded(const std::vector<Json>& operations);

/// A block copies into scratch memory, another one copies out of it, slice by slice.
Json pipeline(int slices_ahead);

}  // namespace foreign_test
