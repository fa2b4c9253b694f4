#include "apus/parallel/host_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

TEST(HostWorker, RunsTasksInOrderBesideTheCaller) {
  HostWorker worker;
  std::vector<int> order;
  std::thread::id thread;
  worker.submit("first", [&] { order.push_back(1); });
  worker.submit("second", [&] { order.push_back(2); });
  const HostWorker::Ticket last = worker.submit("third", [&] {
    order.push_back(3);
    thread = std::this_thread::get_id();
  });
  worker.wait(last);
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(HostWorker, NothingIsWaitedForBeforeTheFirstTask) {
  HostWorker worker;
  worker.wait(0);
}

TEST(HostWorker, ATaskThatThrowsIsNamedAndEndsTheRest) {
  HostWorker worker;
  std::atomic<bool> goes = false, ran = false;
  worker.submit("adding group3", [&] {
    while (!goes) std::this_thread::yield();
    throw std::runtime_error("no more room");
  });
  const HostWorker::Ticket behind = worker.submit("updating group3", [&] { ran = true; });
  goes = true;
  const auto expect_told = [](const auto& call) {
    try {
      call();
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("adding group3 on the host failed: no more room"), std::string::npos) << text;
    }
  };
  expect_told([&] { worker.wait(behind); });
  expect_told([&] { worker.wait(0); });
  expect_told([&] { worker.submit("more", [] {}); });
  EXPECT_FALSE(ran);
}

TEST(HostWorker, GoingAwayWaitsForTheTaskThatRunsAndDropsTheOthers) {
  std::atomic<bool> begun = false, ended = false, dropped = true;
  {
    HostWorker worker;
    worker.submit("slow", [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
    worker.submit("next", [&] { dropped = false; });
    while (!begun) std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace apus::parallel
