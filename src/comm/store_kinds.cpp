#include <unistd.h>

#include <filesystem>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/store.h"
#include "comm/c10d_store.h"
#include "comm/report_text.h"
#include "comm/tcp_socket.h"

namespace apus::comm {
namespace {

class TcpStoreOverC10d final : public TcpStore {
 public:
  TcpStoreOverC10d(c10::intrusive_ptr<c10d::Store> store, int port)
      : store_(from_c10d(std::move(store))), port_(port) {}

  int port() const override { return port_; }
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::optional<std::string> try_get(const std::string& key) override { return store_->try_get(key); }
  int64_t add(const std::string& key, int64_t delta) override { return store_->add(key, delta); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }

 private:
  std::shared_ptr<Store> store_;
  int port_;
};

/// c10d waits five minutes for a file that somebody removed; this store says so at once.
class FileStore final : public Store {
 public:
  FileStore(std::string path, c10::intrusive_ptr<c10d::Store> store)
      : path_(std::move(path)), store_(from_c10d(std::move(store))) {}

  void set(const std::string& key, const std::string& value) override { file().set(key, value); }
  std::optional<std::string> try_get(const std::string& key) override { return file().try_get(key); }
  int64_t add(const std::string& key, int64_t delta) override { return file().add(key, delta); }
  bool check(const std::vector<std::string>& keys) override { return file().check(keys); }
  bool delete_key(const std::string& key) override { return file().delete_key(key); }

 private:
  Store& file() {
    if (!std::filesystem::exists(path_)) {
      throw CommError({.group = "store", .operation = "file"},
                      path_ + " was removed while ranks still use it");
    }
    return *store_;
  }

  std::string path_;
  std::shared_ptr<Store> store_;
};

c10d::TCPStoreOptions c10d_options(const TcpStoreOptions& options, int port) {
  c10d::TCPStoreOptions result;
  result.port = static_cast<std::uint16_t>(port);
  result.isServer = options.is_server;
  if (options.world > 0) result.numWorkers = static_cast<size_t>(options.world);
  result.waitWorkers = options.wait_for_clients && options.world > 0;
  result.timeout = options.timeout;
  return result;
}

}  // namespace

std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options) {
  APUS_CHECK(options.port >= 0 && options.port <= 65535, ConfigError, "port ", options.port,
             " is not a port: expected 0 to 65535");
  APUS_CHECK(options.is_server || options.port > 0, ConfigError,
             "a client of a TCP store needs the server's port; got 0 (set MASTER_PORT or --master_port)");
  std::optional<ListeningSocket> listener;
  if (options.is_server) {
    listener.emplace(options.port);
  } else {
    wait_for_listener(options.host, options.port, options.timeout);
  }
  const int port = listener ? listener->port() : options.port;
  c10d::TCPStoreOptions c10d = c10d_options(options, port);
  if (listener) c10d.masterListenFd = listener->release();
  try {
    return std::make_shared<TcpStoreOverC10d>(c10::make_intrusive<c10d::TCPStore>(options.host, c10d), port);
  } catch (const std::exception& error) {
    throw CommError({.group = "store", .operation = "connect"},
                    detail::concat(options.host, ":", port, ": ", first_line(error)));
  }
}

std::shared_ptr<Store> make_file_store(const std::string& path, int world) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  APUS_CHECK(access(folder.c_str(), W_OK | X_OK) == 0, ConfigError, "the file store ", path,
             " cannot be made: its folder does not exist or is not writable");
  return std::make_shared<FileStore>(path, c10::make_intrusive<c10d::FileStore>(path, world));
}

std::shared_ptr<Store> make_hash_store() {
  return from_c10d(c10::make_intrusive<c10d::HashStore>());
}

}  // namespace apus::comm
