#pragma once

#include <cstdint>

#include "apus/train/memory_plan.h"

namespace apus::train {

/// What is allocated at each moment of a walk, by term, and the moment of each phase with the most.
class MemoryLedger final {
 public:
  void hold(PlanTerm term, int64_t bytes);
  void drop(PlanTerm term, int64_t bytes) { hold(term, -bytes); }
  /// Something that comes and goes while everything else stays.
  void spike(PlanTerm term, int64_t bytes) {
    hold(term, bytes);
    drop(term, bytes);
  }
  /// A new phase begins with what is held now.
  void begin(PlanPhase phase);
  /// The phase's largest moment so far.
  const PhasePlan& phase() const { return phase_; }
  const PlanBytes& now() const { return now_; }

 private:
  PlanBytes now_;
  int64_t total_ = 0;
  int64_t most_ = 0;
  PhasePlan phase_;
};

/// What lies on the host: its own on a card's rank, part of the ledger's on a rank that runs on the host.
class HostLedger final {
 public:
  HostLedger(PlanDevice device, MemoryLedger& ledger) : device_(device), ledger_(ledger) {}

  /// Host memory of the engine: it is asked for once and stays.
  void hold(PlanTerm term, int64_t bytes);
  /// A state that lies where the policy says.
  void place(PlanTerm term, memory::Residency where, int64_t bytes);
  /// Of this rank.
  const PlanBytes& bytes() const { return bytes_; }

 private:
  PlanDevice device_;
  MemoryLedger& ledger_;
  PlanBytes bytes_;
};

/// Bytes that live from construction to the end of a scope.
class Held final {
 public:
  Held(MemoryLedger& ledger, PlanTerm term, int64_t bytes) : ledger_(ledger), term_(term), bytes_(bytes) {
    ledger_.hold(term_, bytes_);
  }
  ~Held() { ledger_.drop(term_, bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  MemoryLedger& ledger_;
  PlanTerm term_;
  int64_t bytes_;
};

}  // namespace apus::train
