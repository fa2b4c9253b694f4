#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace apus::ops {

/// What the choice of a product's algorithm depends on: the device's number, then form, dtypes, sizes,
/// strides, alignments and flags in an order of the caller's.
using GemmKey = std::array<int64_t, 18>;

/// An algorithm, in cuBLASLt's own words.
struct GemmPlan {
  std::array<uint64_t, 8> algorithm = {};
  uint64_t workspace_bytes = 0;
  /// False where cuBLASLt has none.
  bool found = false;
  /// Timing is done, or of no use.
  bool is_settled = false;
  /// False for one from a file, until cuBLASLt has looked at it.
  bool is_checked = true;

  bool operator==(const GemmPlan&) const = default;
};

/// The algorithm of each product that was computed, and which of them are worth timing: those that come back,
/// as long as timing stays small beside computing. Any thread may call.
class GemmPlans final {
 public:
  struct Limits {
    /// Plans that are remembered; beyond them the half goes that was used longest ago.
    size_t most_plans = 4096;
    /// Uses of a product before it is timed.
    int64_t uses = 3;
    /// Timings at any rate, enough for two sets of shapes of a model...
    int64_t free_timings = 64;
    /// ...and one more for so many products: a timing takes up to half a second.
    int64_t products_a_timing = 32768;
    /// Proposals that a product of 100 GFLOP or more tries at the power cap beside the first; a smaller one
    /// tries one. 0: none is timed.
    int finalists = 3;
  };

  struct Use {
    std::optional<GemmPlan> plan;
    bool wants_timing = false;
  };

  GemmPlans();
  explicit GemmPlans(const Limits& limits);

  /// Counts a use.
  Use use(const GemmKey& key);
  void keep(const GemmKey& key, const GemmPlan& plan);
  /// Counts a timing.
  void keep_timed(const GemmKey& key, const GemmPlan& plan);
  size_t size() const;
  /// Forgets everything and begins anew under other limits, for benchmarks that compare them.
  void restart(const Limits& limits);
  int finalists() const;

  /// The settled plans of a device, the device left out, with a checksum behind them.
  std::string text(int64_t device) const;
  /// Takes the plans of a text over for a device where it has none of its own; how many there were. 0 for a
  /// text that is damaged or in another form.
  int64_t read(std::string_view text, int64_t device);

 private:
  struct Entry {
    std::optional<GemmPlan> plan;
    int64_t uses = 0;
    int64_t last_use = 0;
  };

  void make_room();

  Limits limits_;
  mutable std::mutex mutex_;
  std::map<GemmKey, Entry> entries_;
  int64_t products_ = 0, timings_ = 0;
};

}  // namespace apus::ops
