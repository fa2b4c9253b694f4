#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "apus/comm/work.h"
#include "comm/abort_domain.h"
#include "comm/gloo_flight.h"

namespace apus::comm {

/// Waits for a flight by polling it, the job's abort flag and the deadline.
class GlooWork final : public Work {
 public:
  struct Context {
    std::shared_ptr<AbortDomain> domain;
    std::shared_ptr<GroupState> group;
    std::chrono::milliseconds timeout;
  };

  /// `finish` runs once in the waiting thread after the flight has landed: scale, local sum.
  GlooWork(Context context, OpInfo info, std::shared_ptr<GlooFlight> flight, std::function<void()> finish);

  void wait() override;
  bool is_completed() override;

 private:
  void wait_for_landing();
  [[noreturn]] void fail(const std::exception& error);

  Context context_;
  OpInfo info_;
  std::shared_ptr<GlooFlight> flight_;
  std::function<void()> finish_;
  bool finished_ = false;
  std::exception_ptr error_;
};

}  // namespace apus::comm
