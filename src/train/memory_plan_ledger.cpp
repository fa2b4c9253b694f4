#include "train/memory_plan_ledger.h"

#include "apus/base/error.h"

namespace apus::train {

void MemoryLedger::hold(PlanTerm term, int64_t bytes) {
  now_[term] += bytes;
  total_ += bytes;
  APUS_ASSERT(now_[term] >= 0, "a plan drops more of ", term_name(term), " than it holds");
  if (total_ <= most_) return;
  most_ = total_;
  phase_.peak = now_;
}

void HostLedger::hold(PlanTerm term, int64_t bytes) {
  bytes_[term] += bytes;
  if (device_ == PlanDevice::kHost) ledger_.hold(term, bytes);
}

void HostLedger::place(PlanTerm term, memory::Residency where, int64_t bytes) {
  if (where == memory::Residency::kHost) return hold(term, bytes);
  ledger_.hold(term, bytes);
}

void MemoryLedger::begin(PlanPhase phase) {
  phase_ = {phase, now_};
  most_ = total_;
}

}  // namespace apus::train
