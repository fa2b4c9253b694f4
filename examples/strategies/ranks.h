// Ranks as threads of this program; a real job has one process a rank (see ../dpo_lora).
#pragma once

#include <apus/comm/gloo_communicator.h>
#include <apus/comm/store.h>

#include <exception>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

/// Runs `train` as `size` ranks. It returns the first and the last loss, which must have fallen by half.
inline int train_on_ranks(int size, const std::function<std::pair<double, double>(
                                        const std::shared_ptr<apus::comm::Communicator>& world)>& train) {
  const auto store = apus::comm::make_hash_store();
  const auto device = apus::comm::GlooDevice::create();
  std::vector<int> failed(static_cast<size_t>(size), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<apus::comm::Communicator> world;
      try {
        world = apus::comm::GlooCommunicator::create(store, {.rank = rank, .size = size, .device = device});
        const auto [first, last] = train(world);
        failed[static_cast<size_t>(rank)] = !(last < 0.5 * first);
        if (rank == 0) std::cout << "loss " << first << " -> " << last << "\n";
      } catch (const std::exception& error) {
        failed[static_cast<size_t>(rank)] = 1;
        std::cerr << "rank " << rank << ": " << error.what() << "\n";
        if (world) world->abort(error.what());  // the others must not wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank_failed : failed) {
    if (rank_failed) return 1;
  }
  return 0;
}
