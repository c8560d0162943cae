// The checker itself: the classical litmus tests, each with the outcomes that C++20 allows, neither more nor fewer; and
// programs that are wrong, each of which it must find.
#include "cases.hpp"

#include <cuda/atomic>

#include <cstring>
#include <initializer_list>
#include <string>
#include <tuple>

namespace gpusock::model {
namespace {

using Word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
constexpr auto kRelaxed = cuda::memory_order_relaxed;
constexpr auto kAcquire = cuda::memory_order_acquire;
constexpr auto kRelease = cuda::memory_order_release;
constexpr auto kAcqRel = cuda::memory_order_acq_rel;

/// Words that the threads share, and what they read.
struct Words {
  std::uint64_t x = 0, y = 0, z = 0;
  std::uint64_t data[2] = {};  // plain
  std::uint64_t read[4] = {};
};

std::uint64_t get(std::uint64_t& word, cuda::memory_order order) { return Word(word).load(order); }
void set(std::uint64_t& word, std::uint64_t value, cuda::memory_order order) { Word(word).store(value, order); }
void full_fence() { cuda::atomic_thread_fence(cuda::memory_order_seq_cst); }

using Body = void (*)(Words&);

/// A case whose outcome are the first `reads` values read.
Case litmus(std::string name, std::initializer_list<Body> bodies, int reads, std::vector<std::string> outcomes) {
  const std::vector<Body> threads(bodies);
  const auto make = [threads, reads](Run& run) {
    auto& world = run.make<Words>();
    for (const Body body : threads) run.thread([body, &world] { body(world); });
    run.at_end([&world, reads] {
      std::string text;
      for (int i = 0; i < reads; ++i) text += std::to_string(world.read[i]);
      return text;
    });
  };
  return {"litmus." + name, make, std::move(outcomes)};
}

const std::vector<std::string> kAllOfTwo = {"00", "01", "10", "11"};

std::vector<Case> store_buffering() {
  return {
      litmus("store_buffering",
             {[](Words& w) { set(w.x, 1, kRelease), w.read[0] = get(w.y, kAcquire); },
              [](Words& w) { set(w.y, 1, kRelease), w.read[1] = get(w.x, kAcquire); }},
             2, kAllOfTwo),
      litmus("store_buffering_with_fences",
             {[](Words& w) { set(w.x, 1, kRelaxed), full_fence(), w.read[0] = get(w.y, kRelaxed); },
              [](Words& w) { set(w.y, 1, kRelaxed), full_fence(), w.read[1] = get(w.x, kRelaxed); }},
             2, {"01", "10", "11"}),
      litmus("store_buffering_with_one_fence",
             {[](Words& w) { set(w.x, 1, kRelaxed), full_fence(), w.read[0] = get(w.y, kRelaxed); },
              [](Words& w) { set(w.y, 1, kRelaxed), w.read[1] = get(w.x, kRelaxed); }},
             2, kAllOfTwo),
  };
}

std::vector<Case> message_passing() {
  return {
      litmus("message_passing",
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelease); },
              [](Words& w) { w.read[0] = get(w.y, kAcquire), w.read[1] = get(w.x, kRelaxed); }},
             2, {"00", "01", "11"}),
      litmus("message_passing_without_acquire",
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelease); },
              [](Words& w) { w.read[0] = get(w.y, kRelaxed), w.read[1] = get(w.x, kRelaxed); }},
             2, kAllOfTwo),
      litmus("message_passing_without_release",
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.y, kAcquire), w.read[1] = get(w.x, kRelaxed); }},
             2, kAllOfTwo),
      litmus("message_passing_by_fences",
             {[](Words& w) { set(w.x, 1, kRelaxed), cuda::atomic_thread_fence(kRelease), set(w.y, 1, kRelaxed); },
              [](Words& w) {
                w.read[0] = get(w.y, kRelaxed), cuda::atomic_thread_fence(kAcquire), w.read[1] = get(w.x, kRelaxed);
              }},
             2, {"00", "01", "11"}),
      litmus("message_passing_through_three",
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelease); },
              [](Words& w) {
                if (get(w.y, kAcquire) != 0) set(w.z, 1, kRelease);
              },
              [](Words& w) { w.read[0] = get(w.z, kAcquire), w.read[1] = get(w.x, kRelaxed); }},
             2, {"00", "01", "11"}),
      litmus("release_sequence",  // goes on through a read-modify-write of another thread, though that is relaxed
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelease); },
              [](Words& w) { Word(w.y).fetch_add(1, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.y, kAcquire), w.read[1] = get(w.x, kRelaxed); }},
             2, {"00", "01", "11", "10", "21"}),
      litmus("no_release_sequence",  // and not through a store, since C++20 also not of the same thread
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.y, 1, kRelease), set(w.y, 2, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.y, kAcquire), w.read[1] = get(w.x, kRelaxed); }},
             2, {"00", "01", "11", "20", "21"}),
  };
}

std::vector<Case> coherence() {
  return {
      litmus("reads_of_one_word_do_not_go_back",
             {[](Words& w) { set(w.x, 1, kRelaxed), set(w.x, 2, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.x, kRelaxed), w.read[1] = get(w.x, kRelaxed); }},
             2, {"00", "01", "02", "11", "12", "22"}),
      litmus("two_readers_agree_on_one_word",  // never 1, 2 and 2, 1
             {[](Words& w) { set(w.x, 1, kRelaxed); }, [](Words& w) { set(w.x, 2, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.x, kRelaxed), w.read[1] = get(w.x, kRelaxed); },
              [](Words& w) { w.read[2] = get(w.x, kRelaxed), w.read[3] = get(w.x, kRelaxed); }},
             4, {"0000", "0001", "0002", "0011", "0012", "0021", "0022", "0100", "0101", "0102", "0111", "0112",
                 "0121", "0122", "0200", "0201", "0202", "0211", "0212", "0221", "0222", "1100", "1101", "1102",
                 "1111", "1112", "1121", "1122", "1200", "1201", "1202", "1211", "1212", "1222", "2100", "2101",
                 "2102", "2111", "2121", "2122", "2200", "2201", "2202", "2211", "2212", "2221", "2222"}),
      litmus("stores_of_two_words_in_two_orders",  // 2+2W: each word may end with the other thread's first store
             {[](Words& w) { set(w.x, 1, kRelease), set(w.y, 2, kRelease); },
              [](Words& w) { set(w.y, 1, kRelease), set(w.x, 2, kRelease); },
              [](Words& w) {
                while (get(w.x, kRelaxed) == 0 || get(w.y, kRelaxed) == 0) give_way();
              }},
             0, {""}),
      litmus("independent_reads_of_independent_writes",
             {[](Words& w) { set(w.x, 1, kRelease); }, [](Words& w) { set(w.y, 1, kRelease); },
              [](Words& w) { w.read[0] = get(w.x, kAcquire), w.read[1] = get(w.y, kAcquire); },
              [](Words& w) { w.read[2] = get(w.y, kAcquire), w.read[3] = get(w.x, kAcquire); }},
             4,
             {"0000", "0001", "0010", "0011", "0100", "0101", "0110", "0111", "1000", "1001", "1010", "1011", "1100",
              "1101", "1110", "1111"}),
      litmus("independent_reads_with_fences",  // not 1010: the readers agree on what came first
             {[](Words& w) { set(w.x, 1, kRelaxed); }, [](Words& w) { set(w.y, 1, kRelaxed); },
              [](Words& w) { w.read[0] = get(w.x, kRelaxed), full_fence(), w.read[1] = get(w.y, kRelaxed); },
              [](Words& w) { w.read[2] = get(w.y, kRelaxed), full_fence(), w.read[3] = get(w.x, kRelaxed); }},
             4,
             {"0000", "0001", "0010", "0011", "0100", "0101", "0110", "0111", "1000", "1001", "1011", "1100", "1101",
              "1110", "1111"}),
      litmus("load_buffering",  // 11 is C++'s too, and PTX's; it is what this model leaves out
             {[](Words& w) { w.read[0] = get(w.x, kRelaxed), set(w.y, 1, kRelaxed); },
              [](Words& w) { w.read[1] = get(w.y, kRelaxed), set(w.x, 1, kRelaxed); }},
             2, {"00", "01", "10"}),
      litmus("additions_are_not_lost",
             {[](Words& w) { w.read[0] = Word(w.x).fetch_add(1, kRelaxed); },
              [](Words& w) { w.read[1] = Word(w.x).fetch_add(1, kRelaxed); },
              [](Words& w) { w.read[2] = Word(w.x).fetch_add(1, kRelaxed); }},
             3, {"012", "021", "102", "120", "201", "210"}),
      litmus("one_of_two_takes",
             {[](Words& w) {
                std::uint64_t none = 0;
                w.read[0] = Word(w.x).compare_exchange_strong(none, 1, kAcqRel, kAcquire);
              },
              [](Words& w) {
                std::uint64_t none = 0;
                w.read[1] = Word(w.x).compare_exchange_strong(none, 1, kAcqRel, kAcquire);
              }},
             2, {"01", "10"}),
      litmus("a_weak_exchange_may_fail", {[](Words& w) {
               std::uint64_t none = 0;
               w.read[0] = Word(w.x).compare_exchange_weak(none, 1, kAcqRel, kAcquire);
             }},
             1, {"0", "1"}),
  };
}

void lock(Words& w) {
  while (Word(w.x).exchange(1, kAcquire) != 0) give_way();
}

std::vector<Case> plain_memory() {
  const Body counts = [](Words& w) {
    lock(w);
    ++w.data[0];
    set(w.x, 0, kRelease);
  };
  return {
      litmus("a_lock_guards_plain_memory", {counts, counts, counts}, 0, {""}),
      litmus("plain_memory_behind_a_flag",
             {[](Words& w) { w.data[0] = 1, set(w.x, 1, kRelease); },
              [](Words& w) {
                if (get(w.x, kAcquire) != 0) w.read[0] = w.data[0] + 1;
              }},
             1, {"0", "2"}),
      litmus("a_plain_word_that_others_read_atomically",
             {[](Words& w) { w.data[0] = 1, set(w.x, 1, kRelease); },
              [](Words& w) {
                if (get(w.x, kAcquire) != 0) w.read[0] = 1 + get(w.data[0], kRelaxed);
              }},
             1, {"0", "2"}),
  };
}

/// Compilers name a file from where they run, or from the file system's root.
std::vector<Case> sites_by_source() {
  return {{"litmus.a_line_is_one_site_whatever_its_file_is_called",
           [](Run& run) {
             run.at_end([] {
               Sites all;
               const auto at = [&](const char* file, std::uint32_t line = 7, Operation operation = Operation::load) {
                 return &all.at({file, line}, operation, kRelaxed);
               };
               const Site* site = at("gpusock/detail/side.cuh");
               require(site->file == "gpusock/detail/side.cuh", "the name as the tables have it");
               for (const char* same : {"/home/me/gpusock/gpusock/detail/side.cuh", "../../gpusock/detail/side.cuh",
                                        "./gpusock/detail/side.cuh", "gpusock/context/../detail/side.cuh"}) {
                 require(at(same) == site, same);
               }
               require(site->uses == 5 && all.all().size() == 1, "all of them are this one");
               require(at("gpusock/detail/side.cuh", 8) != site, "another line");
               require(at("gpusock/detail/side.cuh", 7, Operation::store) != site, "another operation");
               for (const char* other : {"/home/me/gpusock/ringbuf/side.cuh", "gpusock/detail/beside.cuh",
                                         "/home/me/gpusock/other_gpusock/detail/side.cuh"}) {
                 require(at(other) != site, other);
               }
               return std::string();
             });
           },
           {""}}};
}

}  // namespace

std::vector<Case> litmus_cases() {
  std::vector<Case> all;
  for (auto part : {store_buffering, message_passing, coherence, plain_memory, sites_by_source}) {
    for (Case& one : part()) all.push_back(std::move(one));
  }
  return all;
}

std::vector<Case> broken_cases() {
  struct TwoWords {
    std::uint64_t a, b;
  };
  return {
      litmus("race_of_two_stores", {[](Words& w) { w.data[0] = 1; }, [](Words& w) { w.data[0] = 2; }}, 0, {""}),
      litmus("race_behind_a_relaxed_flag",
             {[](Words& w) { w.data[0] = 1, set(w.x, 1, kRelaxed); },
              [](Words& w) {
                if (get(w.x, kAcquire) != 0) w.read[0] = w.data[0];
              }},
             0, {""}),
      litmus("race_of_a_read_and_a_later_store",  // as a producer that overwrites what a consumer still reads
             {[](Words& w) { w.read[0] = w.data[0], set(w.x, 1, kRelaxed); },
              [](Words& w) {
                if (get(w.x, kAcquire) != 0) w.data[0] = 1;
              }},
             0, {""}),
      litmus("race_within_a_copy",
             {[](Words& w) { std::memset(w.data, 1, sizeof w.data); },
              [](Words& w) { std::memcpy(w.read, w.data, sizeof w.data); }},
             0, {""}),
      litmus("race_of_structures",
             {[](Words& w) {
                *reinterpret_cast<TwoWords*>(w.data) = TwoWords{1, 2};
              },
              [](Words& w) { *reinterpret_cast<TwoWords*>(w.read) = *reinterpret_cast<const TwoWords*>(w.data); }},
             0, {""}),
      litmus("race_of_plain_and_atomic",
             {[](Words& w) { w.data[0] = 1; }, [](Words& w) { w.read[0] = get(w.data[0], kAcquire); }}, 0, {""}),
      litmus("race_of_a_lock_without_acquire",
             {[](Words& w) { lock(w), ++w.data[0], set(w.x, 0, kRelease); },
              [](Words& w) {
                while (Word(w.x).exchange(1, kRelaxed) != 0) give_way();
                ++w.data[0], set(w.x, 0, kRelease);
              }},
             0, {""}),
      litmus("waiting_for_nobody", {[](Words& w) {
               while (get(w.x, kAcquire) == 0) give_way();
             }},
             0, {""}),
      litmus("a_lock_that_is_not_given_back", {[](Words& w) { lock(w); }, [](Words& w) { lock(w); }}, 0, {""}),
      litmus("an_outcome_that_is_not_listed",
             {[](Words& w) { w.read[0] = get(w.x, kRelaxed); }, [](Words& w) { set(w.x, 1, kRelaxed); }}, 1, {"0"}),
      litmus("an_outcome_that_never_comes",
             {[](Words& w) { w.read[0] = get(w.x, kRelaxed); }, [](Words& w) { set(w.x, 1, kRelaxed); }}, 1,
             {"0", "1", "2"}),
      litmus("what_does_not_hold_in_a_thread", {[](Words&) { require(false, "this"); }}, 0, {""}),
      {"litmus.what_does_not_hold_at_the_end",
       [](Run& run) {
         run.at_end([] {
           require(false, "this");
           return std::string();
         });
       },
       {""}},
  };
}

}  // namespace gpusock::model
