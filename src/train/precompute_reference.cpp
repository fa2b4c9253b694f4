#include "apus/train/precompute_reference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/comm/agreed_phase.h"
#include "apus/train/answer_log_probs.h"
#include "data/file_lock.h"

namespace apus::train {
namespace {

/// The pass over all rows, on one rank.
class Precomputation {
 public:
  Precomputation(const data::Dataset& rows, const Reference& reference, parallel::ShardedModel& trained,
                 const PrecomputeOptions& options)
      : rows_(rows), reference_(reference), trained_(trained), options_(options), pairs_(pairs_in(rows)) {}

  ReferenceTable run() {
    ReferenceTable table{.row_hashes = hash_rows(), .chosen = {}, .rejected = {}};
    ReferenceKey key = options_.key;
    key.data = to_hex(Hash64().update(std::as_bytes(std::span(table.row_hashes))).digest());
    key.part = options_.what;
    key.ld_alpha = options_.ld_alpha ? detail::concat(*options_.ld_alpha) : "none";
    key.library = APUS_VERSION;
    if (options_.cache_folder && is_first()) open_cache(key);
    const std::string found = comm::broadcast_text(dp(), found_ ? found_->encode(key.text()) : std::string());
    if (!found.empty()) {
      table = ReferenceFile::decode(found, "rank 0's cache").table;
    } else {
      compute(table);
      keep(key, table);
    }
    lock_.reset();
    return table;
  }

 private:
  comm::Communicator& dp() { return trained_.dp(); }
  bool is_first() { return dp().rank() == 0; }
  void say(const std::string& text) {
    if (is_first()) options_.logger->info("Reference log-probabilities (" + options_.what + "): " + text);
  }

  /// The hashes of all pairs, each rank reading its part.
  std::vector<uint64_t> hash_rows() {
    const at::Tensor hashes = at::zeros({pairs_}, at::kLong);
    int64_t* const values = hashes.mutable_data_ptr<int64_t>();
    for (int64_t ordinal = dp().rank(); ordinal < rows_.size(); ordinal += dp().size()) {
      const data::Batch batch = rows_.collate(std::span(&ordinal, 1), options_.collate);
      const std::vector<uint64_t> found = pair_hashes(batch);
      for (size_t pair = 0; pair < found.size(); ++pair)
        values[batch.ordinals.at(pair)] = static_cast<int64_t>(found[pair]);
    }
    dp().all_reduce(hashes)->wait();
    std::vector<uint64_t> all(static_cast<size_t>(pairs_));
    std::copy_n(hashes.const_data_ptr<int64_t>(), all.size(), all.begin());
    return all;
  }

  /// Rank 0: takes the lock, then what another run has left.
  void open_cache(const ReferenceKey& key) {
    struct GaveUp {};
    try {
      cache_.emplace(*options_.cache_folder / "reference");
      const Clock::Duration start = options_.clock->steady_now();
      bool said = false;
      lock_ = std::make_unique<data::FileLock>(cache_->path(key).string() + ".lock", [&] {
        const Clock::Duration waited = options_.clock->steady_now() - start;
        if (!said) say("waiting for another job that computes the same");
        said = true;
        if (waited > dp().timeout() / 2) throw GaveUp{};
      });
      found_ = cache_->find(key, *options_.logger);
    } catch (const GaveUp&) {
      options_.logger->warning(
          "another job holds the lock of the reference cache for long; computing without it");
      cache_.reset();
      return;
    } catch (const FileError& error) {
      options_.logger->warning(std::string("the reference cache cannot be used: ") + error.what());
      cache_.reset();
      return;
    }
    if (found_) return say("taken from " + cache_->path(key).string());
    const std::string difference = cache_->difference(key);
    if (!difference.empty()) say("computed anew, cached ones differ in " + difference);
  }

  void compute(ReferenceTable& table) {
    const auto batches = reference_batches(rows_, options_.batch_tokens);
    const auto world = static_cast<size_t>(dp().size());
    const size_t rounds = (batches.size() + world - 1) / world;
    sums_ = at::zeros({2, pairs_}, at::kFloat);
    start_ = last_said_ = options_.clock->steady_now();
    for (size_t round = 0; round < rounds; ++round) {
      const size_t mine = round * world + static_cast<size_t>(dp().rank());
      compute_batch(mine < batches.size() ? batches[mine] : std::vector<int64_t>{});
      say_progress(round + 1, rounds);
    }
    dp().all_reduce(sums_)->wait();
    const float* const values = sums_.const_data_ptr<float>();
    table.chosen.assign(values, values + pairs_);
    table.rejected.assign(values + pairs_, values + 2 * pairs_);
    for (const float value : {sums_.min().item<float>(), sums_.max().item<float>()}) {
      APUS_CHECK(pairs_ == 0 || std::isfinite(value), Error, "a reference log-probability is ", value,
                 ": the reference model is broken, or its dtype too narrow");
    }
  }

  void compute_batch(const std::vector<int64_t>& ordinals) {
    const data::Batch batch = rows_.collate(ordinals, options_.collate);
    const at::Tensor weights = options_.ld_alpha ? length_weights(batch, *options_.ld_alpha) : at::Tensor();
    const at::Tensor found =
        reference_log_probs(reference_, trained_, batch, weights).to(at::kCPU).contiguous();
    const float* const from = found.const_data_ptr<float>();
    float* const to = sums_.mutable_data_ptr<float>();
    for (int64_t pair = 0; pair < batch.pairs; ++pair) {
      const int64_t row = batch.ordinals.at(static_cast<size_t>(pair));
      to[row] = from[pair];
      to[pairs_ + row] = from[batch.pairs + pair];
    }
  }

  void say_progress(size_t done, size_t rounds) {
    constexpr auto kEvery = std::chrono::seconds(10);
    const Clock::Duration now = options_.clock->steady_now();
    const double seconds = seconds_between(start_, now);
    if (done == rounds)
      return say(detail::concat(pairs_, " pairs in ", std::llround(seconds * 10) / 10.0, " s"));
    if (now - last_said_ < kEvery) return;
    last_said_ = now;
    const double share = static_cast<double>(done) / static_cast<double>(rounds);
    say(detail::concat(std::llround(100 * share), " % of ", pairs_, " pairs, ",
                       std::llround(seconds * (1 - share) / share), " s left"));
  }

  void keep(const ReferenceKey& key, const ReferenceTable& table) {
    if (!cache_ || !is_first()) return;
    try {
      cache_->store(key, table);
      say("kept in " + cache_->path(key).string());
    } catch (const FileError& error) {
      options_.logger->warning(std::string("the reference log-probabilities are not kept: ") + error.what());
    }
  }

  const data::Dataset& rows_;
  const Reference& reference_;
  parallel::ShardedModel& trained_;
  const PrecomputeOptions& options_;
  int64_t pairs_;
  at::Tensor sums_;  ///< [2, pairs] this rank's part, the rest zeros
  Clock::Duration start_{}, last_said_{};
  std::optional<ReferenceCache> cache_;  ///< rank 0
  std::unique_ptr<data::FileLock> lock_;
  std::optional<ReferenceTable> found_;
};

}  // namespace

std::vector<std::vector<int64_t>> reference_batches(const data::Dataset& rows, int64_t batch_tokens) {
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{}, [&](int64_t ordinal) { return rows.tokens(ordinal); });
  std::vector<std::vector<int64_t>> batches;
  int64_t longest = 0;
  for (const int64_t ordinal : order) {
    const bool fits = !batches.empty() && (std::ssize(batches.back()) + 1) * longest <= batch_tokens;
    if (!fits) {
      batches.emplace_back();
      longest = rows.tokens(ordinal);
    }
    batches.back().push_back(ordinal);
  }
  return batches;
}

std::shared_ptr<const ReferencedDataset> precompute_reference(std::shared_ptr<const data::Dataset> rows,
                                                              const Reference& reference,
                                                              parallel::ShardedModel& trained,
                                                              const PrecomputeOptions& options) {
  APUS_CHECK(rows && options.clock && options.logger, ConfigError,
             "precompute_reference needs a dataset, a clock and a logger");
  APUS_CHECK(reference.kind != ReferenceKind::kNone && !reference.is_precomputed, ConfigError,
             "a reference that is ", reference.sentence(), " needs no precompute_ref_log_probs");
  try {
    auto table =
        std::make_shared<const ReferenceTable>(Precomputation(*rows, reference, trained, options).run());
    return std::make_shared<const ReferencedDataset>(std::move(rows), std::move(table));
  } catch (const std::exception& error) {
    trained.dp().abort(error.what());
    throw;
  }
}

}  // namespace apus::train
