#include "maker.hpp"

namespace foreign_test {

Maker::Maker(Collective collective, int ranks, int chunks, int scratch_chunks, bool in_place) {
  plan.format = "MSCCL";
  plan.collective = collective;
  plan.ranks = ranks;
  plan.data_chunks = chunks;
  (in_place ? plan.runs_in_place : plan.runs_out_of_place) = true;
  const Sizes sizes = sizes_of(collective, ranks, chunks);
  plan.sizes.assign(static_cast<std::size_t>(ranks), {sizes.input, sizes.output, scratch_chunks});
}

Maker& Maker::without_syncs() {
  plan.syncs_itself = false;
  return *this;
}

int Maker::block(int rank) {
  int id = 0;
  for (const Block& block : plan.blocks) id += block.rank == rank ? 1 : 0;
  plan.blocks.push_back({rank, id, {}});
  return static_cast<int>(plan.blocks.size()) - 1;
}

int Maker::connection(int from, int to) {
  plan.connections.push_back({from, to, 0});
  return static_cast<int>(plan.connections.size()) - 1;
}

int Maker::counter(int initial) {
  plan.counters.push_back({"counter " + std::to_string(plan.counters.size()), initial});
  return static_cast<int>(plan.counters.size()) - 1;
}

int Maker::barrier(int blocks) {
  plan.barriers.push_back({"the barrier", blocks});
  return static_cast<int>(plan.barriers.size()) - 1;
}

int Maker::queue(int rank) {
  plan.queues.push_back(rank);
  return static_cast<int>(plan.queues.size()) - 1;
}

Step& Maker::add(int block, Kind kind, const char* name) {
  std::vector<Step>& steps = plan.blocks[static_cast<std::size_t>(block)].steps;
  Step step;
  step.kind = kind;
  step.name = name;
  step.index = static_cast<int>(steps.size());
  steps.push_back(std::move(step));
  return steps.back();
}

Step& Maker::move(int block, std::vector<Place> from, std::vector<Place> to, int count) {
  Step& step = add(block, Kind::move, "cpy");
  step.count = count;
  step.from = std::move(from);
  step.to = std::move(to);
  return step;
}

Step& Maker::send(int block, int connection, Place from, int count) {
  Step& step = move(block, {from}, {}, count);
  step.name = "s";
  step.sends = connection;
  return step;
}

Step& Maker::receive(int block, int connection, Place to, int count) {
  Step& step = move(block, {}, {to}, count);
  step.name = "r";
  step.receives = connection;
  return step;
}

Step& Maker::receive_add(int block, int connection, Place place, int count) {
  Step& step = move(block, {place}, {place}, count);
  step.name = "rrc";
  step.receives = connection;
  return step;
}

Step& Maker::await(int block, int other, int step) {
  Step& made = add(block, Kind::await, "nop");
  made.awaited_block = other;
  made.awaited_step = step;
  return made;
}

Step& Maker::signal(int block, int counter) {
  Step& step = add(block, Kind::signal, "signal");
  step.counter = counter;
  return step;
}

Step& Maker::wait(int block, int counter) {
  Step& step = add(block, Kind::wait, "wait");
  step.counter = counter;
  return step;
}

Step& Maker::meet(int block, int barrier) {
  Step& step = add(block, Kind::barrier, "barrier");
  step.barrier = barrier;
  return step;
}

Step& Maker::sync(int block) { return add(block, Kind::sync, "nop"); }

Step& Maker::flush(int block, int queue) {
  Step& step = add(block, Kind::flush, "flush");
  step.queue = queue;
  return step;
}

Plan ring(int ranks) {
  Maker maker(Collective::all_reduce, ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    maker.block(rank);
    maker.connection(rank, (rank + 1) % ranks);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const int before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 2 * (ranks - 1); ++i) {
      const int sent = (rank + 2 * ranks - i) % ranks;
      const int received = (sent + ranks - 1) % ranks;
      maker.send(rank, rank, in(rank, sent));
      if (i < ranks - 1) {
        maker.receive_add(rank, before, in(rank, received));
      } else {
        maker.receive(rank, before, in(rank, received));
      }
    }
  }
  return maker.plan;
}

Plan pair_with_awaits() {
  Maker maker(Collective::all_reduce, 2, 1, 1);
  for (int rank = 0; rank < 2; ++rank) {
    maker.block(rank);
    maker.block(rank);
    maker.connection(rank, 1 - rank);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const int first = 2 * rank;
    const int second = first + 1;
    maker.send(first, rank, in(rank, 0));
    maker.receive(first, 1 - rank, scratch(rank, 0));
    maker.await(second, first, 1);
    maker.move(second, {in(rank, 0), scratch(rank, 0)}, {in(rank, 0)});
  }
  return maker.plan;
}

Plan pair_with_counters() {
  Maker maker(Collective::all_reduce, 2, 1, 1);
  maker.without_syncs();
  for (int rank = 0; rank < 2; ++rank) {
    maker.block(rank);
    maker.counter();  // that the peer signals
  }
  for (int rank = 0; rank < 2; ++rank) {
    maker.signal(rank, 1 - rank);  // I have begun: my scratch memory is free
    maker.wait(rank, rank);
    maker.sync(rank);
    maker.move(rank, {in(rank, 0)}, {scratch(1 - rank, 0)});
    maker.sync(rank);
    maker.signal(rank, 1 - rank);
    maker.wait(rank, rank);
    maker.sync(rank);
    maker.move(rank, {in(rank, 0), scratch(rank, 0)}, {in(rank, 0)});
  }
  return maker.plan;
}

std::vector<Plan> right_plans() {
  std::vector<Plan> plans{ring(2), ring(3), pair_with_awaits(), pair_with_counters()};
  plans.back().syncs_itself = true;

  Maker packets(Collective::all_reduce, 2, 1, 1);
  for (int rank = 0; rank < 2; ++rank) {
    packets.move(packets.block(rank), {in(rank, 0)}, {packet(1 - rank, 0)});
    packets.move(rank, {in(rank, 0), packet(rank, 0, true)}, {in(rank, 0)});
  }
  plans.push_back(packets.plan);

  // All-gather of three ranks: rank 0 sends on by one step, and a second block of rank 2 copies.
  Maker gather(Collective::all_gather, 3, 3, 1);
  for (int rank = 0; rank < 3; ++rank) {
    gather.block(rank);
    gather.connection(rank, (rank + 1) % 3);
  }
  for (int rank = 0; rank < 3; ++rank) {
    gather.send(rank, rank, in(rank, 0));
    gather.receive(rank, (rank + 2) % 3, out(rank, (rank + 2) % 3)).sends = rank;
    gather.receive(rank, (rank + 2) % 3, out(rank, (rank + 1) % 3));
  }
  const int copier = gather.block(2);
  gather.await(copier, 2, 1);
  gather.move(copier, {out(2, 1)}, {scratch(2, 0)});
  plans.push_back(gather.plan);

  // Two chunks in one message, which is added on both sides.
  Maker messages(Collective::all_reduce, 2, 2, 2);
  messages.plan.slots = 2;
  for (int rank = 0; rank < 2; ++rank) {
    messages.block(rank);
    messages.connection(rank, 1 - rank);
  }
  for (int rank = 0; rank < 2; ++rank) {
    messages.send(rank, rank, in(rank, 0), 2);
    messages.receive_add(rank, 1 - rank, in(rank, 0), 2);
  }
  plans.push_back(messages.plan);
  return plans;
}

void mutate(Plan& plan, std::mt19937& random) {
  const auto below = [&random](std::size_t size) { return static_cast<int>(random() % size); };
  Block& block = plan.blocks[static_cast<std::size_t>(below(plan.blocks.size()))];
  if (block.steps.empty()) return;
  const auto index = static_cast<std::size_t>(below(block.steps.size()));
  Step& step = block.steps[index];
  const auto change = [&](std::vector<Place>& places) {
    if (places.empty()) return;
    Place& place = places[static_cast<std::size_t>(below(places.size()))];
    if (place.buffer == Buffer::scratch || place.buffer == Buffer::packets) return;
    const int choices = plan.sizes[0].input - step.count + 1;
    if (choices > 0) place.cell = below(static_cast<std::size_t>(choices));
  };
  switch (below(9)) {
    case 0:
      block.steps.erase(block.steps.begin() + static_cast<std::ptrdiff_t>(index));
      break;
    case 1:
      std::swap(block.steps[index], block.steps[static_cast<std::size_t>(below(block.steps.size()))]);
      break;
    case 2:
      change(step.from);
      break;
    case 3:
      change(step.to);
      break;
    case 4:
      block.steps.insert(block.steps.begin() + static_cast<std::ptrdiff_t>(index), Step(step));
      break;
    case 5:
      if (step.kind == Kind::await) --step.awaited_step;
      break;
    case 6:
      if (step.from.size() > 1 || step.receives != kNone) step.from.clear();
      break;
    case 7:
      if (step.count == 2) step.count = 1;
      break;
    default:
      if (step.counter != kNone) step.kind = step.kind == Kind::signal ? Kind::wait : Kind::signal;
      break;
  }
}

bool could_be_read(const Plan& plan) {
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    for (const Step& step : plan.blocks[block].steps) {
      if (step.kind == Kind::move && step.from.empty() && step.receives == kNone) return false;
      if (step.kind != Kind::await) continue;
      const auto& awaited = plan.blocks[static_cast<std::size_t>(step.awaited_block)].steps;
      if (step.awaited_step < 0 || static_cast<std::size_t>(step.awaited_step) >= awaited.size()) return false;
    }
  }
  return true;
}

}  // namespace foreign_test
