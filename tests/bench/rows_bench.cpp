// Prepares generated rows: how fast, in how much memory, and how soon a second process has them again.
//
// usage: apus_bench_rows generate sft|dpo ROWS FILE
//        apus_bench_rows prepare sft|dpo TOKENIZER_FOLDER FILE CACHE_FOLDER WORKERS
// `prepare` prints one JSON object: rows, seconds, peak of RssAnon (sampled every 5 ms), VmHWM (which counts
// mapped files), bytes of file and cache, and whether the rows came from the cache. Fails (status 1) if a row
// is missing.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/log.h"
#include "apus/base/memory_usage.h"
#include "apus/base/philox.h"
#include "apus/data/dataset.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Words of a text: as long and as uneven in frequency as words are, 30,000 of them.
class WordSource {
 public:
  WordSource() : random_(1, "bench/words") {
    constexpr std::string_view kSyllables[] = {"an",  "be", "con", "der",  "er", "for", "ge",
                                               "ing", "ka", "lo",  "mi",   "na", "or",  "pre",
                                               "qu",  "re", "sta", "tion", "un", "ver"};
    for (int w = 0; w < 30'000; ++w) {
      std::string word;
      for (uint64_t s = 0; s < 1 + draw(4); ++s) word += kSyllables[draw(std::size(kSyllables))];
      words_.push_back(word);
    }
  }

  /// `count` words with punctuation; frequent ones are those of small number.
  std::string text(uint64_t count) {
    std::string text;
    for (uint64_t i = 0; i < count; ++i) {
      const double share = random_.uniform(next_++);
      if (!text.empty()) text += i % 11 == 10 ? ", " : i % 17 == 16 ? ". " : " ";
      text += words_[static_cast<size_t>(share * share * share * static_cast<double>(words_.size()))];
      if (draw(23) == 0) text += " " + std::to_string(draw(10'000));
    }
    return text + ".";
  }
  uint64_t draw(uint64_t below) { return random_.below(next_++, below); }

 private:
  PhiloxSequence random_;
  uint64_t next_ = 0;
  std::vector<std::string> words_;
};

Json sft_row(WordSource& words) {
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", words.text(8 + words.draw(20))}});
  messages.push_back({{"role", "assistant"}, {"content", words.text(15 + words.draw(40))}});
  return {{"messages", messages}};
}

Json dpo_row(WordSource& words) {
  return {{"prompt", words.text(8 + words.draw(20))},
          {"chosen", words.text(10 + words.draw(25))},
          {"rejected", words.text(10 + words.draw(25))}};
}

void generate(const std::string& kind, int64_t rows, const fs::path& path) {
  WordSource words;
  std::ofstream out(path, std::ios::binary);
  for (int64_t i = 0; i < rows; ++i) out << (kind == "dpo" ? dpo_row(words) : sft_row(words)).dump() << '\n';
  APUS_CHECK(out.flush(), Error, "cannot write ", path.string());
}

/// Samples RssAnon from another thread while it lives.
class MemoryWatch {
 public:
  MemoryWatch()
      : thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            peak_.sample();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }) {}
  int64_t peak_mib() const { return peak_.peak_bytes() >> 20; }

 private:
  ResidentPeak peak_;
  std::jthread thread_;
};

/// VmHWM out of /proc/self/status.
int64_t high_water_mib() {
  const std::string status = read_file("/proc/self/status");
  const size_t at = status.find("VmHWM:");
  return at == std::string::npos ? 0 : std::stoll(status.substr(at + 6)) / 1024;
}

std::shared_ptr<const Dataset> prepared(const std::string& kind, const TokenizerFolder& tokenizer,
                                        const RowReadOptions& read, int64_t workers, Logger& logger) {
  if (kind == "dpo") return prepare_dpo(tokenizer, {.read = read, .workers = workers}, logger);
  return prepare_sft(tokenizer, {.read = read, .workers = workers}, logger);
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& each : fs::recursive_directory_iterator(folder))
    if (each.is_regular_file()) bytes += static_cast<int64_t>(each.file_size());
  return bytes;
}

int prepare(const std::string& kind, const fs::path& tokenizer_folder, const fs::path& file,
            const fs::path& cache, int64_t workers) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  const TokenizerFolder tokenizer = load_tokenizer_folder(tokenizer_folder);
  const auto loaded = std::chrono::steady_clock::now();
  MemoryWatch watch;
  CaptureLogger lines;
  const auto dataset =
      prepared(kind, tokenizer, {.files = {file.string()}, .cache_folder = cache}, workers, lines);
  const double seconds = Seconds(std::chrono::steady_clock::now() - loaded).count();
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset->size(); ++i) tokens += dataset->tokens(i);
  const Json result{{"kind", kind},
                    {"rows", dataset->size()},
                    {"tokens", tokens},
                    {"workers", workers},
                    {"tokenizer_seconds", Seconds(loaded - start).count()},
                    {"seconds", seconds},
                    {"rows_per_second", static_cast<int64_t>(static_cast<double>(dataset->size()) / seconds)},
                    {"peak_rss_anon_mib", watch.peak_mib()},
                    {"vm_hwm_mib", high_water_mib()},
                    {"file_mib", static_cast<int64_t>(fs::file_size(file)) >> 20},
                    {"cache_mib", folder_bytes(cache) >> 20},
                    {"from_cache", lines.contains("come from the cache")},
                    {"fingerprint", dataset->origin().fingerprint}};
  std::cout << result.dump() << std::endl;
  return dataset->origin().report.dropped() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace apus::data

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "generate") {
      apus::data::generate(words[1], std::stoll(words[2]), words[3]);
      return 0;
    }
    if (words.size() == 6 && words[0] == "prepare")
      return apus::data::prepare(words[1], words[2], words[3], words[4], std::stoll(words[5]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  std::cerr << "usage: apus_bench_rows generate sft|dpo ROWS FILE\n"
               "       apus_bench_rows prepare sft|dpo TOKENIZER_FOLDER FILE CACHE_FOLDER WORKERS\n";
  return 2;
}
