#include "comm/gloo_flight.h"

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "apus/base/error.h"

namespace apus::comm {

GlooFlight::GlooFlight(std::vector<WorkPointer> works, std::vector<at::Tensor> tensors)
    : works_(std::move(works)), tensors_(std::move(tensors)) {}

GlooFlight::~GlooFlight() {
  if (!waiter_.joinable()) return;
  interrupt();
  waiter_.join();
}

void GlooFlight::wait_in_background() {
  waiter_ = std::thread([this] {
    try {
      for (const WorkPointer& work : works_) {
        if (!work->wait()) throw Error("the transfer was interrupted");
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    waited_ = true;
  });
}

bool GlooFlight::landed() const {
  if (waiter_.joinable()) return waited_;
  return std::ranges::all_of(works_, [](const WorkPointer& work) { return work->isCompleted(); });
}

void GlooFlight::check() {
  if (waiter_.joinable()) {
    if (error_) std::rethrow_exception(error_);
    return;
  }
  for (const WorkPointer& work : works_) work->wait();
}

void GlooFlight::forget() {
  // Gloo's thread drops its own reference just after a work has completed; the last one frees the tensors, which
  // should be gone when this returns.
  constexpr int kYields = 100, kNaps = 200;
  constexpr std::chrono::microseconds kNap{50};
  for (const WorkPointer& work : works_) {
    for (int polls = 0; work.use_count() > 1 && polls < kYields + kNaps; ++polls) {
      if (polls < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }
  works_.clear();
  tensors_.clear();
}

void GlooFlight::interrupt() {
  if (!waiter_.joinable()) return;
  for (const WorkPointer& work : works_) work->abort();
}

}  // namespace apus::comm
