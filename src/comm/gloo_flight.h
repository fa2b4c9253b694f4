#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace c10d {
class Work;
}

namespace apus::comm {

/// One operation inside Gloo together with the tensors that its background thread touches. A flight that has
/// not landed must not be destroyed: the communicator keeps it, and the reaper after that.
class GlooFlight {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  GlooFlight(std::vector<WorkPointer> works, std::vector<at::Tensor> tensors);
  ~GlooFlight();
  GlooFlight(const GlooFlight&) = delete;
  GlooFlight& operator=(const GlooFlight&) = delete;

  /// Point-to-point works complete only inside their own wait(): a thread of the flight's own does that.
  void wait_in_background();
  /// Whether nothing is left to happen; never blocks.
  bool landed() const;
  /// Throws what went wrong; the flight must have landed.
  void check();
  /// Gives up works and tensors, so that their memory is free now and not with the communicator's next
  /// operation. The flight must have landed.
  void forget();
  /// Ends background waits; collectives cannot be interrupted.
  void interrupt();

 private:
  std::vector<WorkPointer> works_;
  std::vector<at::Tensor> tensors_;
  std::thread waiter_;
  std::atomic<bool> waited_{false};
  std::exception_ptr error_;
};

}  // namespace apus::comm
