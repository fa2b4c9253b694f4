#include "cli/data_text.h"

#include <algorithm>
#include <cmath>

#include "apus/base/error.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

using train::DataLook;
using train::DatasetLook;

constexpr int64_t kBarColumns = 50;
constexpr size_t kNumberColumns = 11;

/// 1234567 as 1,234,567.
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

/// One decimal.
std::string rounded(double number) {
  const auto tenths = static_cast<int64_t>(std::llround(number * 10));
  return grouped(tenths / 10) + "." + std::to_string(tenths % 10);
}

std::string percent(double share) {
  return rounded(100 * share) + " %";
}

/// "1 row", "2 rows".
std::string counted(int64_t number, const std::string& name) {
  return grouped(number) + " " + name + (number == 1 ? "" : "s");
}

std::string right(const std::string& text, size_t columns) {
  return std::string(columns > text.size() ? columns - text.size() : 0, ' ') + text;
}

std::string left(const std::string& text, size_t columns) {
  return text + std::string(columns > text.size() ? columns - text.size() : 0, ' ');
}

/// The column of held-out rows is there only where a split has some.
std::string count_line(const std::string& name, size_t columns, const data::FileCounts& counts, bool split) {
  std::string line = "  " + left(name, columns);
  for (const int64_t count : {counts.read, counts.whole, counts.truncated})
    line += right(grouped(count), kNumberColumns);
  if (split) line += right(grouped(counts.held_out), kNumberColumns);
  return line + right(grouped(counts.dropped), kNumberColumns) + "\n";
}

std::string counts_text(const DatasetLook& look) {
  size_t columns = 5;
  for (const data::FileCounts& file : look.files) columns = std::max(columns, harmless(file.file).size());
  const bool split = look.report.held_out() > 0;
  std::string text = "  " + left("file", columns);
  for (const char* name : {"read", "whole", "truncated"}) text += right(name, kNumberColumns);
  text += (split ? right("held out", kNumberColumns) : "") + right("dropped", kNumberColumns) + "\n";
  for (const data::FileCounts& file : look.files)
    text += count_line(harmless(file.file), columns, file, split);
  if (look.files.size() > 1) {
    text += count_line("all", columns,
                       {.read = look.report.input(),
                        .whole = look.report.whole(),
                        .truncated = look.report.truncated(),
                        .held_out = look.report.held_out(),
                        .dropped = look.report.dropped()},
                       split);
  }
  for (const std::string& line : look.report.details()) text += "  " + harmless(line) + "\n";
  return text;
}

std::string histogram_text(const data::LengthSummary& lengths) {
  int64_t most = 1;
  for (const data::LengthBin& bin : lengths.histogram) most = std::max(most, bin.count);
  const size_t columns = grouped(lengths.longest).size() + 1;
  std::string text;
  for (const data::LengthBin& bin : lengths.histogram) {
    const int64_t bar = (bin.count * kBarColumns + most - 1) / most;
    text += "  " + right(grouped(bin.begin), columns) + " to " + left(grouped(bin.end - 1), columns) + " |" +
            left(std::string(static_cast<size_t>(bar), '#'), kBarColumns) +
            right(grouped(bin.count), kNumberColumns) + "\n";
  }
  return text;
}

std::string lengths_text(const data::LengthSummary& lengths) {
  std::string text = detail::concat(
      "  ", counted(lengths.tokens, "token"), " in ", counted(lengths.sequences, "sequence"), "; ",
      grouped(lengths.trained_tokens), " of them trained (", percent(lengths.trained_share()), ")\n");
  text += detail::concat("  lengths: shortest ", grouped(lengths.shortest), ", mean ",
                         rounded(lengths.mean()), ", longest ", grouped(lengths.longest));
  for (const auto& [percent, length] : lengths.percentiles)
    text += detail::concat("; ", percent, " % up to ", grouped(length));
  return text + "\n" + histogram_text(lengths);
}

/// The start of a text, not cut within a character.
std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) +
         detail::concat(" [... ", counted(static_cast<int64_t>(text.size() - end), "more byte"), "]");
}

/// The whole sequence, and below it the labels with what is not trained as "[-100 * n]".
std::string sequence_text(const std::vector<data::SampleRun>& runs, const DataTextOptions& options) {
  const auto coloured = [&](const char* code, const std::string& text) {
    return options.colours ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
  };
  std::string input;
  std::string labels;
  for (const data::SampleRun& run : runs) {
    const std::string text = shortened(harmless(run.text), options.max_part_bytes);
    const std::string weight =
        run.weight == 0 || run.weight == 1 ? "" : detail::concat("[weight ", run.weight, "]");
    input += run.weight == 0 ? coloured("2", text) : coloured("32", text);
    labels += run.weight == 0 ? coloured("2", detail::concat("[-100 * ", run.tokens, "]"))
                              : coloured("32", weight + text);
  }
  return "input: " + input + "\nlabels: " + labels + "\n";
}

std::string samples_text(const DatasetLook& look, const DataTextOptions& options) {
  std::string text = "\nFirst rows" + (look.note.empty() ? "" : " (" + harmless(look.note) + ")") + "\n";
  for (const data::RowSample& sample : look.samples) {
    for (const auto& [name, runs] : sample.sequences)
      text += detail::concat("--- ", harmless(sample.place), name == "text" ? "" : ", " + name, "\n",
                             sequence_text(runs, options));
  }
  return text;
}

std::string dataset_text(const DatasetLook& look, const DataTextOptions& options) {
  const std::string counts = "\n" + look.flag + "\n" + counts_text(look);
  return look.lengths.sequences == 0 ? counts
                                     : counts + lengths_text(look.lengths) + samples_text(look, options);
}

std::string packing_text(const train::PackingLook& packing) {
  return detail::concat("  packing: ", counted(packing.report.rows, "row"), " in ",
                        counted(packing.report.packs, "pack"), " of ",
                        counted(packing.packing_length, "token"), ", ", percent(packing.report.efficiency()),
                        " full; ", counted(packing.report.oversized, "row"),
                        packing.report.oversized == 1 ? " is longer than a pack and stands alone\n"
                                                      : " are longer than a pack and stand alone\n");
}

std::string padding_text(const DataLook& look) {
  const data::BatchSurvey& batches = look.batches;
  if (look.without_padding) {
    return detail::concat("  no padding; the largest micro-batch has ", counted(batches.largest, "token"),
                          "\n",
                          look.packing ? ""
                                       : detail::concat("  --padding_free false would add ",
                                                        percent(batches.padding_share()), " padding\n"));
  }
  return detail::concat("  padding: ", percent(batches.padding_share()), " of ",
                        grouped(batches.padded_tokens),
                        " tokens an epoch (--padding_free true has none); the largest micro-batch has ",
                        counted(batches.largest_padded, "token"), "\n");
}

std::string batches_text(const DataLook& look) {
  const data::BatchSurvey& batches = look.batches;
  const std::string row = look.packing ? "pack" : "row";
  std::string text = "\nBatches\n";
  if (look.split_rows > 0)
    text += detail::concat("  ", counted(look.split_rows, "row"), look.split_rows == 1 ? " is" : " are",
                           " held out (--split_dataset_ratio)\n");
  if (look.packing) text += packing_text(*look.packing);
  text += detail::concat("  a step: ", counted(look.micro_batch_rows, row), " x ", look.accumulation,
                         look.accumulation == 1 ? " micro-batch x " : " micro-batches x ",
                         counted(look.world, "rank"), " = ",
                         counted(look.micro_batch_rows * look.accumulation * look.world, row), "\n");
  text += detail::concat("  an epoch: ", counted(batches.rows, row), ", ", counted(batches.steps, "step"),
                         ", ", counted(batches.tokens, "token"),
                         "; the run: ", counted(look.total_steps, "step"), "\n");
  return text + padding_text(look);
}

std::string head_text(const DataLook& look) {
  const std::string task(data::data_task_name(look.task));
  return detail::concat("Task: ", task,
                        "; max_length: ", look.max_length ? grouped(*look.max_length) : "none", "\n");
}

}  // namespace

std::string data_text(const DataLook& look, const DataTextOptions& options) {
  std::string text = head_text(look) + dataset_text(look.train, options);
  if (look.held_out) text += dataset_text(*look.held_out, options);
  return look.batches.steps == 0 ? text : text + batches_text(look);
}

}  // namespace apus::cli
