#include "data/tokenizer_json.h"

#include "apus/base/error.h"
#include "apus/base/json.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

// Builds a document out of the events, but feeds the entries of model.vocab and model.merges to their tables.
class Reader final : public JsonSax {
 public:
  explicit Reader(TokenizerJson& out) : out_(out) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool binary(binary_t&) override { fail("binary data"); }

  bool number_integer(number_integer_t value) override {
    if (table_ == Table::kVocabulary && table_depth_ == 1) fail_id(std::to_string(value));
    return scalar(value);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (table_ != Table::kVocabulary || table_depth_ != 1) return scalar(value);
    if (value > static_cast<number_unsigned_t>(kMaxTokenId)) fail_id(std::to_string(value));
    out_.vocabulary.add(key_, static_cast<int32_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (table_ != Table::kMerges) return scalar(std::move(value));
    if (table_depth_ == 1) {
      add_merge_line(value);
    } else {
      if (++names_in_pair_ > 2) fail_merge();
      add_merge_name(value);
    }
    return true;
  }

  bool key(string_t& name) override {
    key_.swap(name);
    return true;
  }

  bool start_object(std::size_t) override { return start(Json::object()); }
  bool start_array(std::size_t) override { return start(Json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(error.what());
  }

 private:
  // kOther: a table of another model family, passed over; what the model is decides whether that is an error.
  enum class Table { kNone, kVocabulary, kMerges, kOther };

  [[noreturn]] void fail(const std::string& reason) const { throw DataError(out_.source, 0, reason); }
  [[noreturn]] void fail_merge() const {
    fail("merge " + std::to_string(out_.merge_ends.size() / 2) +
         " of model.merges: expected \"left right\" or [\"left\", \"right\"]");
  }
  [[noreturn]] void fail_id(const std::string& id) const {
    fail("the id of '" + key_ + "' in model.vocab is " + id + ", expected 0 to " +
         std::to_string(kMaxTokenId));
  }

  void add_merge_name(std::string_view name) {
    out_.merge_text += name;
    out_.merge_ends.push_back(static_cast<uint32_t>(out_.merge_text.size()));
  }

  void add_merge_line(const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) fail_merge();
    add_merge_name(std::string_view(line).substr(0, space));
    add_merge_name(std::string_view(line).substr(space + 1));
  }

  Json* put(Json value) {
    if (stack_.empty()) {
      out_.document = std::move(value);
      return &out_.document;
    }
    Json& parent = *stack_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool scalar(Json value) {
    if (table_ == Table::kVocabulary) fail("the id of '" + key_ + "' in model.vocab is no number");
    if (table_ == Table::kMerges) fail_merge();
    if (table_ == Table::kNone) put(std::move(value));
    return true;
  }

  bool in_model() const {
    return stack_.size() == 2 && out_.document.contains("model") &&
           stack_.back() == &out_.document["model"] && stack_.back()->is_object();
  }

  bool start(Json empty) {
    if (table_ != Table::kNone) return start_in_table();
    if (in_model() && (key_ == "vocab" || key_ == "merges")) {
      const bool vocabulary = key_ == "vocab" && empty.is_object();
      const bool merges = key_ == "merges" && empty.is_array();
      out_.has_vocabulary = out_.has_vocabulary || vocabulary;
      out_.has_merges = out_.has_merges || merges;
      table_ = vocabulary ? Table::kVocabulary : merges ? Table::kMerges : Table::kOther;
      table_depth_ = 1;
      return true;
    }
    stack_.push_back(put(std::move(empty)));
    return true;
  }

  bool start_in_table() {
    ++table_depth_;
    names_in_pair_ = 0;
    if (table_ == Table::kVocabulary) fail("the id of '" + key_ + "' in model.vocab is no number");
    if (table_ == Table::kMerges && table_depth_ > 2) fail_merge();
    return true;
  }

  bool end() {
    if (table_ == Table::kNone) {
      stack_.pop_back();
      return true;
    }
    if (table_ == Table::kMerges && table_depth_ == 2 && names_in_pair_ != 2) fail_merge();
    if (--table_depth_ == 0) table_ = Table::kNone;
    return true;
  }

  TokenizerJson& out_;
  std::vector<Json*> stack_;
  std::string key_;
  Table table_ = Table::kNone;
  int table_depth_ = 0;
  int names_in_pair_ = 0;
};

}  // namespace

void TokenizerJson::add_merge(std::string_view left, std::string_view right) {
  if (merge_text.size() + left.size() + right.size() > UINT32_MAX)
    throw DataError(source, 0, "has more than 4 GiB of merges");
  merge_text += left;
  merge_ends.push_back(static_cast<uint32_t>(merge_text.size()));
  merge_text += right;
  merge_ends.push_back(static_cast<uint32_t>(merge_text.size()));
}

BpeModel::NamedMerges TokenizerJson::merges() const {
  BpeModel::NamedMerges pairs;
  pairs.reserve(merge_ends.size() / 2);
  const std::string_view text = merge_text;
  uint32_t begin = 0;
  for (size_t i = 0; i + 1 < merge_ends.size(); i += 2) {
    const uint32_t middle = merge_ends[i];
    const uint32_t end = merge_ends[i + 1];
    pairs.emplace_back(text.substr(begin, middle - begin), text.substr(middle, end - middle));
    begin = end;
  }
  return pairs;
}

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source) {
  TokenizerJson out;
  out.source = source;
  constexpr size_t kBytesOfAnEntry = 48;  // of vocabulary and merges together, about
  out.vocabulary.reserve(text.size() / kBytesOfAnEntry);
  Reader reader(out);
  sax_parse(text, source, reader);
  if (!out.document.is_object()) throw DataError(source, 0, "expected a JSON object at the top");
  return out;
}

}  // namespace apus::data
