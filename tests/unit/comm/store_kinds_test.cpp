#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "apus/base/error.h"
#include "apus/comm/store.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

TEST(TcpStore, ChoosesAFreePortAndServesClients) {
  const auto server = make_tcp_store({.port = 0, .is_server = true, .timeout = milliseconds(5000)});
  ASSERT_GT(server->port(), 0);
  const auto client = make_tcp_store({.port = server->port(), .timeout = milliseconds(5000)});
  client->set("k", "from the client");
  EXPECT_EQ(server->get("k", milliseconds(1000)), "from the client");
  EXPECT_EQ(server->add("n", 1), 1);
  EXPECT_EQ(client->add("n", 1), 2);
  EXPECT_TRUE(client->delete_key("k"));
  EXPECT_EQ(server->try_get("k"), std::nullopt);
}

TEST(TcpStore, AClientMayComeBeforeTheServer) {
  const auto free_port = make_tcp_store({.port = 0, .is_server = true})->port();
  std::shared_ptr<TcpStore> client;
  std::thread early([&] { client = make_tcp_store({.port = free_port, .timeout = milliseconds(5000)}); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto server = make_tcp_store({.port = free_port, .is_server = true, .timeout = milliseconds(5000)});
  early.join();
  server->set("k", "1");
  EXPECT_EQ(client->get("k", milliseconds(1000)), "1");
}

TEST(TcpStore, PortInUseSaysWhatToDo) {
  const auto server = make_tcp_store({.port = 0, .is_server = true});
  try {
    make_tcp_store({.port = server->port(), .is_server = true});
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("port " + std::to_string(server->port()) + " is in use"), std::string::npos) << text;
    EXPECT_NE(text.find("choose another with --master_port, or let it be chosen (0)"), std::string::npos)
        << text;
  }
}

TEST(TcpStore, NobodyServesNamesTheAddress) {
  const auto free_port = make_tcp_store({.port = 0, .is_server = true})->port();
  try {
    make_tcp_store({.port = free_port, .timeout = milliseconds(100)});
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("nobody serves 127.0.0.1:" + std::to_string(free_port)), std::string::npos) << text;
    EXPECT_NE(text.find("MASTER_ADDR"), std::string::npos) << text;
  }
}

TEST(TcpStore, RefusesWhatIsNoPort) {
  EXPECT_THROW(make_tcp_store({.port = 65536, .is_server = true}), ConfigError);
  EXPECT_THROW(make_tcp_store({.port = -1, .is_server = true}), ConfigError);
  EXPECT_THROW(make_tcp_store({.port = 0}), ConfigError);
}

TEST(TcpStore, AClientWhoseServerIsGoneThrows) {
  auto server = make_tcp_store({.port = 0, .is_server = true});
  const auto client = make_tcp_store({.port = server->port(), .timeout = milliseconds(500)});
  server.reset();
  EXPECT_THROW(client->set("k", "1"); client->try_get("k"), CommError);
}

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() : folder_(fs::temp_directory_path() / ("apus_file_store_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~FileStoreTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(FileStoreTest, TwoRanksShareAFile) {
  const auto one = make_file_store(path("meet"), 2);
  const auto two = make_file_store(path("meet"), 2);
  one->set("k", "1");
  EXPECT_EQ(two->get("k", milliseconds(1000)), "1");
  EXPECT_EQ(one->add("n", 1), 1);
  EXPECT_EQ(two->add("n", 1), 2);
  EXPECT_TRUE(two->delete_key("k"));
  EXPECT_EQ(one->try_get("k"), std::nullopt);
}

TEST_F(FileStoreTest, ARemovedFileIsSaidAtOnce) {
  const auto store = make_file_store(path("gone"), 1);
  store->set("k", "1");
  fs::remove(path("gone"));
  const auto start = std::chrono::steady_clock::now();
  try {
    store->get("k", milliseconds(60'000));
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("was removed"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1000));
}

TEST_F(FileStoreTest, AMissingFolderIsNamed) {
  EXPECT_THROW(make_file_store(path("no/such/folder"), 1), ConfigError);
}

}  // namespace
}  // namespace apus::comm
