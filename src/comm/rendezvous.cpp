#include "apus/base/error.h"
#include "apus/comm/launch_environment.h"
#include "comm/backoff.h"

namespace apus::comm {
namespace {

const char* const kGoodbye = "rendezvous/goodbye";

/// The store that rank 0 serves. Everybody says goodbye, and rank 0 waits a moment for the others: they may
/// still want to read why the job has ended.
class SharedStore final : public Store {
 public:
  SharedStore(std::shared_ptr<Store> store, const LaunchEnvironment& launch, std::chrono::milliseconds linger)
      : store_(std::move(store)), rank_(launch.rank), others_(launch.world_size - 1), linger_(linger) {}

  ~SharedStore() override {
    try {
      const Backoff backoff(linger_);
      int64_t gone = store_->add(kGoodbye, rank_ == 0 ? 0 : 1);
      while (rank_ == 0 && gone < others_ && backoff.pause()) gone = store_->add(kGoodbye, 0);
    } catch (const std::exception&) {
      return;  // rank 0 is gone already: nobody is left to hear it
    }
  }

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::optional<std::string> try_get(const std::string& key) override { return store_->try_get(key); }
  int64_t add(const std::string& key, int64_t delta) override { return store_->add(key, delta); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }

 private:
  std::shared_ptr<Store> store_;
  int rank_;
  int others_;
  std::chrono::milliseconds linger_;
};

}  // namespace

std::shared_ptr<Store> rendezvous(const LaunchEnvironment& launch, const RendezvousOptions& options) {
  APUS_CHECK(launch.source != LaunchSource::kSpawn, ConfigError,
             "this process starts ranks (NPROC_PER_NODE=", launch.spawn,
             ") and is not one of them: the program apus does so by itself; start any other one without that "
             "variable by torchrun --no-python --nproc_per_node=",
             launch.spawn, " PROGRAM, by srun or by mpirun");
  if (!launch.distributed() && !launch.use_agent_store) return make_hash_store();
  const bool serves = launch.rank == 0 && !launch.use_agent_store;
  APUS_CHECK(launch.master_port > 0, ConfigError, "MASTER_PORT is not set: ", launch.world_size,
             " ranks need a port to meet at");
  std::shared_ptr<Store> store = make_tcp_store({.host = launch.master_addr,
                                                 .port = launch.master_port,
                                                 .world = launch.world_size,
                                                 .is_server = serves,
                                                 .timeout = options.timeout});
  // torchrun's agent keeps its own keys in the same store; its name for an attempt's keys is kept.
  const std::string prefix =
      (launch.use_agent_store ? "/worker/attempt_" : "attempt_") + std::to_string(launch.restart_count);
  store = make_prefix_store(prefix, std::move(store));
  if (launch.use_agent_store) return store;
  return std::make_shared<SharedStore>(std::move(store), launch, options.linger);
}

}  // namespace apus::comm
