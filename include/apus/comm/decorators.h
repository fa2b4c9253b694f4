#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus {
class Logger;
}

namespace apus::comm {

/// Passes every operation on, through one function that a derived class overrides: a decorator is that
/// function and what it remembers. Groups made from a decorated communicator are decorated in the same way.
/// Throws:      ConfigError if there is no communicator under it; what the inner communicator throws.
class APUS_API DecoratedCommunicator : public Communicator {
 public:
  explicit DecoratedCommunicator(std::shared_ptr<Communicator> inner);
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  std::shared_ptr<Store> store() const override { return inner_->store(); }
  std::chrono::milliseconds timeout() const override { return inner_->timeout(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  void check_running() override { inner_->check_running(); }
  void set_note(const std::string& note) override { inner_->set_note(note); }

 protected:
  /// Starts the operation on the inner communicator.
  using Launch = std::function<std::shared_ptr<Work>()>;
  /// Called for every operation instead of it; calls `launch` or not.
  virtual std::shared_ptr<Work> intercept(const OpInfo& info, const Launch& launch) = 0;
  /// Wraps a group made from the inner communicator.
  virtual std::unique_ptr<Communicator> decorate(std::shared_ptr<Communicator> inner) const = 0;
  Communicator& inner() const { return *inner_; }

  std::shared_ptr<Work> do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                      const ReduceOptions& options) final;
  std::shared_ptr<Work> do_all_gather(const OpInfo& info, const at::Tensor& out, const at::Tensor& in) final;
  std::shared_ptr<Work> do_reduce_scatter(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                          const ReduceOptions& options) final;
  std::shared_ptr<Work> do_broadcast(const OpInfo& info, const at::Tensor& tensor, int root) final;
  std::shared_ptr<Work> do_all_to_all_v(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                        const std::vector<int64_t>& out_splits,
                                        const std::vector<int64_t>& in_splits) final;
  std::shared_ptr<Work> do_send_recv(const OpInfo& info, const std::vector<P2pOp>& ops) final;
  std::shared_ptr<Work> do_barrier(const OpInfo& info) final;
  std::unique_ptr<Communicator> do_subgroup(int64_t index, const std::vector<int>& ranks,
                                            const std::string& name) final;

 private:
  std::shared_ptr<Communicator> inner_;
  int64_t inner_subgroups_ = 0;
};

/// Options of make_checked_communicator.
struct APUS_API CheckedOptions {
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);  ///< for the others to start the same operation
};

/// Before each collective all ranks agree through the store on operation, dtype, count, root and sequence; a
/// mismatch throws CommError on all of them ("rank 3 is in reduce_scatter #118 of dp, others in all_gather
/// #118") instead of hanging or mixing up data. Costs a few store round trips a collective: for tests and for
/// hunting a hang. send_recv is passed on unchecked.
APUS_API std::unique_ptr<Communicator> make_checked_communicator(std::shared_ptr<Communicator> inner,
                                                                 const CheckedOptions& options = {});

/// What happens at one operation: three ways in which ranks of a real job fall apart.
enum class FaultKind {
  /// It starts later.
  kDelay,
  /// This rank does not take part; its Work completes at once, so that the rank runs on.
  kDrop,
  /// It throws CommError("injected fault").
  kThrow,
};

/// One planned fault. The defaults throw at the first operation of rank 0 in "world".
struct APUS_API Fault {
  /// What happens.
  FaultKind kind = FaultKind::kThrow;
  /// To which rank of the group.
  int rank = 0;
  /// In the group of this name.
  std::string group = "world";
  /// At which operation: its ordinal in that group, from 1.
  int64_t sequence = 1;
  /// How much later it starts, for kDelay.
  std::chrono::milliseconds delay{0};
};

/// Lets operations fail as planned, for fault tests. Operations that no fault names pass unchanged; a dropped
/// one still counts in this communicator's sequence, but not in that of the inner one.
APUS_API std::unique_ptr<Communicator> make_faulty_communicator(std::shared_ptr<Communicator> inner,
                                                                std::vector<Fault> faults);

/// One recorded operation.
struct APUS_API OpRecord {
  /// Name of the group.
  std::string group;
  /// This rank in it.
  int rank = 0;
  /// Operation, sequence, dtype, shape, bytes.
  OpInfo info;
};

/// What communicators did: the last operations in full, counts and bytes of all. One log may serve many
/// groups of one rank; operations stand in the order in which they were started. Safe from several threads.
/// Memory:      about 200 bytes for each kept operation.
class APUS_API CommLog {
 public:
  virtual ~CommLog();
  /// Keeps the last `capacity` operations.
  static std::shared_ptr<CommLog> create(size_t capacity = 4096);
  /// Adds one operation.
  virtual void add(const OpRecord& record) = 0;
  /// The operations still kept, oldest first.
  virtual std::vector<OpRecord> records() const = 0;
  /// How often an operation was called since the last clear().
  virtual int64_t count(OpKind kind) const = 0;
  /// Sum of OpInfo::payload_bytes: what this rank handed over, by the definition there.
  virtual int64_t bytes(OpKind kind) const = 0;
  /// Forgets everything.
  virtual void clear() = 0;
  /// One line for each kept operation.
  std::string text() const;
};

/// Records every operation in `log` before it starts, and writes the kept ones to `logger` (if not null) when
/// it is aborted through this handle. Groups made from it write to the same log under their own names; to
/// count one strategy's bytes, wrap the world before the mesh is made and clear() after the warm-up.
/// Throws:      ConfigError if the log is null.
APUS_API std::unique_ptr<Communicator> make_recorded_communicator(std::shared_ptr<Communicator> inner,
                                                                  std::shared_ptr<CommLog> log,
                                                                  std::shared_ptr<Logger> logger = nullptr);

}  // namespace apus::comm
