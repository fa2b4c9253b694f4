#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "comm/gloo_flight.h"

namespace apus::testing {

/// A c10d work that completes when told to.
class WaitingWork final : public c10d::Work {
 public:
  bool isCompleted() override { return done; }
  bool wait(std::chrono::milliseconds) override {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!error.empty()) throw std::runtime_error(error);
    return !aborted;
  }
  void abort() override {
    aborted = true;
    done = true;
  }
  std::atomic<bool> done{false};
  std::atomic<bool> aborted{false};
  std::string error;
};

/// A flight of that work.
inline std::shared_ptr<comm::GlooFlight> flight_of(const c10::intrusive_ptr<WaitingWork>& work,
                                                   std::vector<at::Tensor> tensors = {}) {
  return std::make_shared<comm::GlooFlight>(std::vector<comm::GlooFlight::WorkPointer>{work},
                                            std::move(tensors));
}

}  // namespace apus::testing
