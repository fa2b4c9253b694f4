#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::comm {

/// A key-value store that all ranks of a job share: rendezvous, status exchanges, aborts. Values are byte
/// strings. Safe to use from several threads. Torch-free.
/// Throws:      CommError from every member if the server behind it is gone.
class APUS_API Store {
 public:
  virtual ~Store();

  /// Writes a key, replacing what was there.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of a key if it is there now; never waits.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  /// Adds to a counter (absent counts as 0) and returns the new value. A key is either a counter or a value.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  /// True if every key is there now.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Removes a key; true if it was there. A file store keeps no track of that and always gives true.
  virtual bool delete_key(const std::string& key) = 0;

  /// Waits until the key is there. Throws CommError naming the key after the timeout.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  /// Waits until all keys are there. Throws CommError naming the missing keys after the timeout.
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
};

/// How to reach or serve a TCP store. A served port listens on all addresses of this machine.
struct APUS_API TcpStoreOptions {
  /// Where the server is.
  std::string host = "127.0.0.1";
  /// 0 lets a server choose a free one (see TcpStore::port).
  int port = 29500;
  /// Clients that will connect; 0 if unknown.
  int world = 0;
  /// This process serves the store.
  bool is_server = false;
  /// The server's constructor returns only when `world` ranks are connected.
  bool wait_for_clients = false;
  /// For connecting, and for one operation.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// A store behind a TCP port, served by one process.
class APUS_API TcpStore : public Store {
 public:
  /// The port in use: the chosen one if 0 was asked for.
  virtual int port() const = 0;
};

/// Connects to (or serves) a TCP store.
/// Throws:      ConfigError if the port is in use or not a port, CommError if nobody serves it in time.
APUS_API std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options);

/// A store in one file that all ranks can see. The file stays until the last user is gone.
/// Throws:      ConfigError if the file's folder cannot be written.
APUS_API std::shared_ptr<Store> make_file_store(const std::string& path, int world);

/// A store in this process's memory: ranks as threads, tests.
APUS_API std::shared_ptr<Store> make_hash_store();

/// The same store, every key put under `prefix` + "/": one server serves many groups and attempts.
APUS_API std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace apus::comm
