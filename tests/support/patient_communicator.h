#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "apus/comm/decorators.h"

namespace apus::testing {

/// Lets Work::wait() end only when the operation has ended. A group over a fake of NCCL orders streams and
/// does not make the host wait, as on a GPU; but the tensors of tests are read by the host.
class PatientCommunicator final : public comm::DecoratedCommunicator {
 public:
  using DecoratedCommunicator::DecoratedCommunicator;

 protected:
  class PatientWork final : public comm::Work {
   public:
    explicit PatientWork(std::shared_ptr<comm::Work> work) : work_(std::move(work)) {}
    void wait() override {
      work_->wait();
      while (!work_->is_completed()) std::this_thread::yield();
      work_->wait();  // throws what ended it
    }
    bool is_completed() override { return work_->is_completed(); }

   private:
    std::shared_ptr<comm::Work> work_;
  };

  std::shared_ptr<comm::Work> intercept(const comm::OpInfo&, const Launch& launch) override {
    return std::make_shared<PatientWork>(launch());
  }
  std::unique_ptr<comm::Communicator> decorate(std::shared_ptr<comm::Communicator> inner) const override {
    return std::make_unique<PatientCommunicator>(std::move(inner));
  }
};

}  // namespace apus::testing
