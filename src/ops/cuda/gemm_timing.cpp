// Which of cuBLASLt's proposals is fastest, found out on the operands themselves, in order on the stream that
// computes. Each runs once unseen, which loads its kernel, then in a few short rounds by turns. But a card
// that computes for long is held by its power, and a proposal that is faster for a millisecond may draw more
// and be slower for a minute. So the fastest few then meet the first proposal for long enough to be at the
// cap, by turns, and one takes its place only if it is clearly faster there.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <limits>

#include "ops/cuda/lt_problem.h"

namespace apus::ops::cuda {
namespace {

constexpr int kCandidates = 12;
constexpr int kRounds = 3;
/// Short products run several times between two events.
constexpr float kRoundMs = 0.15F;
constexpr int kMostRepeats = 12;
/// After the first round: no more time for what is this much slower than the best.
constexpr float kHopeless = 1.2F;
/// What another proposal than the first must reach in short rounds, where one is tried at the cap; and there.
constexpr float kPromising = 0.97F;
constexpr float kClear = 0.985F;
/// Where several are tried at the cap: how far behind the best of the short rounds they may be.
constexpr float kClose = 1.10F;
constexpr float kTurnMs = 60.0F;
constexpr int kTurns = 2;
constexpr int64_t kMostScratchBytes = int64_t{256} << 20;

class Event final {
 public:
  Event() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void wait() { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  float since(const Event& begin) const {
    float milliseconds = 0.0F;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Candidate {
  GemmPlan plan;
  Event begin, end;
  float least = std::numeric_limits<float>::infinity();
  bool runs = true;
};

class Race final {
 public:
  Race(LtProblem& problem, const std::vector<GemmPlan>& plans, cudaStream_t stream, void* d)
      : problem_(problem), candidates_(plans.size()), stream_(stream), d_(d) {
    for (size_t i = 0; i < plans.size(); ++i) candidates_[i].plan = plans[i];
  }

  std::optional<GemmPlan> winner(int finalists) {
    for (Candidate& candidate : candidates_) candidate.runs = problem_.launch(candidate.plan, stream_, d_);
    if (!candidates_[0].runs) return std::nullopt;
    const float once = round(1);
    const int repeats = static_cast<int>(
        std::clamp(kRoundMs / std::max(once, 1e-3F), 1.0F, static_cast<float>(kMostRepeats)));
    for (Candidate& candidate : candidates_) {
      candidate.runs = candidate.runs && candidate.least <= kHopeless * once;
      if (repeats > 1) candidate.least = std::numeric_limits<float>::infinity();
    }
    candidates_[0].runs = true;
    float least = once;
    for (int i = 1; i < kRounds; ++i) least = round(repeats);
    const float limit = finalists > 1 ? kClose * least : kPromising * candidates_[0].least;
    return fastest_at_the_cap(challengers(limit, finalists)).plan;
  }

 private:
  /// Runs all by turns; the least time of one product so far.
  float round(int repeats) {
    for (Candidate& candidate : candidates_) {
      if (!candidate.runs) continue;
      candidate.begin.record(stream_);
      for (int i = 0; i < repeats; ++i) problem_.launch(candidate.plan, stream_, d_);
      candidate.end.record(stream_);
    }
    float least = std::numeric_limits<float>::infinity();
    for (Candidate& candidate : candidates_) {
      if (!candidate.runs) continue;
      candidate.end.wait();
      candidate.least =
          std::min(candidate.least, candidate.end.since(candidate.begin) / static_cast<float>(repeats));
      least = std::min(least, candidate.least);
    }
    return least;
  }

  /// Milliseconds of one product in a turn of its own.
  float turn(Candidate& candidate) {
    const auto repeats = static_cast<int>(std::clamp(kTurnMs / candidate.least, 1.0F, 2000.0F));
    candidate.begin.record(stream_);
    for (int i = 0; i < repeats; ++i) problem_.launch(candidate.plan, stream_, d_);
    candidate.end.record(stream_);
    candidate.end.wait();
    return candidate.end.since(candidate.begin) / static_cast<float>(repeats);
  }

  /// The fastest that took at most `limit` in short rounds, without the first proposal.
  std::vector<Candidate*> challengers(float limit, int most) {
    std::vector<Candidate*> found;
    for (size_t i = 1; i < candidates_.size(); ++i)
      if (candidates_[i].runs && candidates_[i].least <= limit) found.push_back(&candidates_[i]);
    std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->least < b->least; });
    found.resize(std::min(found.size(), static_cast<size_t>(most)));
    return found;
  }

  /// The first proposal, unless another is clearly faster.
  const Candidate& fastest_at_the_cap(std::vector<Candidate*> runners) {
    if (runners.empty()) return candidates_[0];
    runners.insert(runners.begin(), &candidates_[0]);
    std::vector<float> times(runners.size());
    for (int i = 0; i < kTurns; ++i)
      for (size_t one = 0; one < runners.size(); ++one) times[one] += turn(*runners[one]);
    const size_t best = static_cast<size_t>(std::min_element(times.begin(), times.end()) - times.begin());
    return times[best] < kClear * times[0] ? *runners[best] : candidates_[0];
  }

  LtProblem& problem_;
  std::vector<Candidate> candidates_;
  cudaStream_t stream_;
  void* d_;
};

/// Memory in the layout of D.
at::Tensor like_result(const at::Tensor& d) {
  return at::empty({(d.size(0) - 1) * row_stride(d) + d.size(1)}, d.options());
}

}  // namespace

std::optional<GemmPlan> timed_plan(LtProblem& problem, const Gemm& product, cudaStream_t stream,
                                   int finalists) {
  const bool repeatable = product.beta == 0.0 || product.c.defined();
  at::Tensor scratch;
  if (!repeatable) {
    const int64_t bytes = product.d.size(0) * row_stride(product.d) * product.d.element_size();
    if (bytes > kMostScratchBytes) return std::nullopt;
    try {
      scratch = like_result(product.d);
    } catch (const c10::OutOfMemoryError&) {
      return std::nullopt;
    }
  }
  const std::vector<GemmPlan> plans = problem.proposals(kCandidates);
  if (plans.empty()) return std::nullopt;
  std::optional<GemmPlan> best = plans[0];
  if (plans.size() > 1)
    best = Race(problem, plans, stream, repeatable ? nullptr : scratch.mutable_data_ptr()).winner(finalists);
  if (best) best->is_settled = true;
  return best;
}

}  // namespace apus::ops::cuda
