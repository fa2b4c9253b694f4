// Times the tokenizer on the documents of mixed_text.py and compares its ids with the peer's; times a chat.
//
// usage: apus_bench_tokenizer TOKENIZER_JSON TEXT PEER_IDS CHAT_TEMPLATE
// Prints one JSON object; fails (status 1) if a document's ids differ. PEER_IDS may be "-": nothing is
// compared.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/data/chat_template.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr int kLoads = 5;
constexpr int kPasses = 7;
constexpr int kChatRounds = 2000;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of this thread's own computing: other programs on the machine disturb it less.
double cpu_seconds_of(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

double best_seconds(int passes, const std::function<void()>& work) {
  double best = seconds_of(work);
  for (int i = 1; i < passes; ++i) best = std::min(best, seconds_of(work));
  return best;
}

uint32_t word_at(std::string_view bytes, size_t at) {
  APUS_CHECK(at + sizeof(uint32_t) <= bytes.size(), Error, "a file ends inside a document, at byte ", at);
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

std::vector<std::string_view> read_documents(std::string_view file) {
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < file.size(); at += 4 + documents.back().size())
    documents.push_back(file.substr(at + 4, word_at(file, at)));
  return documents;
}

std::vector<Ids> encode_all(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents) {
  std::vector<Ids> rows;
  rows.reserve(documents.size());
  for (const std::string_view document : documents)
    rows.push_back(tokenizer.encode(document, {.add_special_tokens = false}));
  return rows;
}

size_t count_equal(const std::vector<Ids>& rows, std::string_view peer) {
  size_t equal = 0;
  size_t at = 0;
  for (const Ids& row : rows) {
    const uint32_t count = word_at(peer, at);
    const std::string_view ids = peer.substr(at + 4, count * sizeof(int32_t));
    equal += row.size() == count && std::memcmp(row.data(), ids.data(), ids.size()) == 0;
    at += 4 + count * sizeof(int32_t);
  }
  return equal;
}

// A system message and four questions with their answers.
Json chat_of_four_turns() {
  Json messages = Json::array();
  const auto say = [&messages](const char* role, const char* content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  say("system", "You are Apus, a swift assistant. Answer in one paragraph.");
  say("user", "What is the difference between a swift and a swallow?");
  say("assistant",
      "Swifts belong to the family Apodidae and are close to hummingbirds; swallows are songbirds.");
  say("user", "Which of them sleeps on the wing?");
  say("assistant", "The common swift does: it may stay in the air for ten months without landing once.");
  say("user", "How was that found out?");
  say("assistant",
      "Researchers in Lund fitted 19 birds with loggers of about one gram that recorded flight activity.");
  say("user", "Thank you! How fast do they fly?");
  say("assistant", "About 40 km/h while feeding, and up to 111 km/h in level flight during display.");
  return messages;
}

Json time_chat(const Tokenizer& tokenizer, const std::string& template_text) {
  const ChatTemplate chat(JinjaTemplate::parse(template_text, "bench"));
  const Json messages = chat_of_four_turns();
  const std::string text = chat.render(messages);
  size_t used = 0;
  const auto each = [](double seconds) { return seconds / kChatRounds * 1e6; };
  const auto repeat = [](const std::function<void()>& work) {
    return best_seconds(kPasses, [&work] {
      for (int i = 0; i < kChatRounds; ++i) work();
    });
  };
  const double encode = repeat([&] { used += tokenizer.encode(text, {.add_special_tokens = false}).size(); });
  const double render = repeat([&] { used += chat.render(messages).size(); });
  const double both =
      repeat([&] { used += tokenizer.encode(chat.render(messages), {.add_special_tokens = false}).size(); });
  return {{"messages", messages.size()},
          {"bytes", text.size()},
          {"tokens", tokenizer.encode(text, {.add_special_tokens = false}).size()},
          {"render_us", each(render)},
          {"encode_us", each(encode)},
          {"both_us", each(both)},
          {"used", used}};
}

int run(const std::string& tokenizer_json, const std::string& text_path, const std::string& peer_path,
        const std::string& template_path) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const double load = best_seconds(kLoads, [&] { tokenizer = Tokenizer::from_file(tokenizer_json); });
  const MappedFile text(text_path);
  const std::vector<std::string_view> documents = read_documents(text.text());
  double megabytes = 0;
  for (const std::string_view document : documents) megabytes += static_cast<double>(document.size()) / 1e6;

  std::vector<Ids> rows;
  double first_cpu = 0;
  const double first =
      seconds_of([&] { first_cpu = cpu_seconds_of([&] { rows = encode_all(*tokenizer, documents); }); });
  double one_cpu = first_cpu;
  for (int i = 0; i < kPasses; ++i)
    one_cpu = std::min(one_cpu, cpu_seconds_of([&] { encode_all(*tokenizer, documents); }));
  const double one = best_seconds(kPasses, [&] { encode_all(*tokenizer, documents); });
  std::vector<Ids> batch;
  const double two = best_seconds(
      kPasses, [&] { batch = tokenizer->encode_batch(documents, {.add_special_tokens = false}, 2); });
  APUS_CHECK(batch == rows, Error, "two threads give other ids than one");
  size_t tokens = 0;
  for (const Ids& row : rows) tokens += row.size();
  Json result = {{"load_ms", load * 1e3},
                 {"megabytes", megabytes},
                 {"documents", documents.size()},
                 {"tokens", tokens},
                 {"first_mb_s", megabytes / first},
                 {"first_cpu_mb_s", megabytes / first_cpu},
                 {"one_cpu_mb_s", megabytes / one_cpu},
                 {"one_thread_mb_s", megabytes / one},
                 {"two_threads_mb_s", megabytes / two}};
  result["chat"] = time_chat(*tokenizer, read_file(template_path));
  const bool compares = peer_path != "-";
  if (compares) result["equal_documents"] = count_equal(rows, read_file(peer_path));
  std::cout << result.dump() << "\n";
  return compares && result["equal_documents"] != documents.size() ? 1 : 0;
}

}  // namespace
}  // namespace apus::data

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: apus_bench_tokenizer TOKENIZER_JSON TEXT PEER_IDS CHAT_TEMPLATE\n";
    return 2;
  }
  try {
    return apus::data::run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const apus::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
