#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/param_group.h"

namespace apus::memory {

/// Where a parameter's gradient is added, and who learns that it is complete: the one seam between ops, the
/// tape and the strategies.
///
/// Within a micro-batch every use of a parameter in a recorded forward is announced (`expect`), and every
/// backward of such a use adds once (`add`, also when the gradient is undefined). A parameter is complete
/// when all announced uses have added; a group when all its announced parameters are. A tied weight has two
/// uses. The groups' order is the order of completion that all ranks agree on, so a group that completes
/// early waits for those before it: on_ready is called in list order whatever the data.
/// Not thread-safe: forward and backward of a model run on one thread.
class APUS_API GradSink {
 public:
  /// `groups` in the order in which they are reduced; the pointers must outlive the sink.
  explicit GradSink(std::vector<ParamGroup*> groups);

  /// Called once a group and micro-batch, in list order, when its gradients are complete.
  void set_on_ready(std::function<void(ParamGroup&)> on_ready);

  /// True if the tensor is a trainable parameter that this sink takes gradients for.
  bool takes(const at::Tensor& parameter) const;

  /// Called when a gradient is to be written into a group that is still being reduced for the micro-batch
  /// before: it must finish that reduction.
  void set_on_busy(std::function<void(ParamGroup&)> on_busy);

  /// Where an operation may put a gradient of `parameter` itself, on the current stream: it writes (is_fresh)
  /// or adds, and returns an undefined gradient to the tape. Absent: not a parameter of this sink. The use
  /// still ends with add(), whose undefined gradient then adds nothing. Allowed from the use's forward on.
  std::optional<GradTarget> target(const at::Tensor& parameter);

  /// Announces one use of a parameter in a recorded forward.
  void expect(const at::Tensor& parameter);

  /// Adds the gradient of one use; undefined means zeros.
  void add(const at::Tensor& parameter, const at::Tensor& grad);

  /// Ends the micro-batch: groups not ready yet (unused parameters, a rank without rows) become ready with
  /// zeros for what is missing, in order. Clears all announcements.
  void flush();

 private:
  struct Place {
    size_t group = 0;
    int64_t index = 0;
    int pending = 0;
  };

  void drain();
  Place& place_of(const at::Tensor& parameter);

  std::vector<ParamGroup*> groups_;
  std::vector<int64_t> pending_;  // announced and not yet added uses, by group
  std::vector<char> started_;     // a use was announced in this micro-batch, by group
  size_t next_ = 0;               // first group that is not ready yet
  std::unordered_map<const void*, Place> places_;
  std::function<void(ParamGroup&)> on_ready_, on_busy_;
};

}  // namespace apus::memory
