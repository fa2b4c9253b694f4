#include <thread>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "comm/local_collectives.h"

namespace apus::comm {
namespace {

class FaultyCommunicator final : public DecoratedCommunicator {
 public:
  FaultyCommunicator(std::shared_ptr<Communicator> inner, std::vector<Fault> faults)
      : DecoratedCommunicator(std::move(inner)), faults_(std::move(faults)) {}

 protected:
  std::shared_ptr<Work> intercept(const OpInfo& info, const Launch& launch) override {
    for (const Fault& fault : faults_) {
      if (fault.rank != rank() || fault.group != name() || fault.sequence != info.sequence) continue;
      switch (fault.kind) {
        case FaultKind::kDelay:
          std::this_thread::sleep_for(fault.delay);
          break;
        case FaultKind::kDrop:
          return finished_work();
        case FaultKind::kThrow:
          throw CommError(
              {.group = name(), .operation = std::string(op_name(info.kind)), .sequence = info.sequence},
              "injected fault");
      }
    }
    return launch();
  }
  std::unique_ptr<Communicator> decorate(std::shared_ptr<Communicator> inner) const override {
    return make_faulty_communicator(std::move(inner), faults_);
  }

 private:
  std::vector<Fault> faults_;
};

}  // namespace

std::unique_ptr<Communicator> make_faulty_communicator(std::shared_ptr<Communicator> inner,
                                                       std::vector<Fault> faults) {
  return std::make_unique<FaultyCommunicator>(std::move(inner), std::move(faults));
}

}  // namespace apus::comm
