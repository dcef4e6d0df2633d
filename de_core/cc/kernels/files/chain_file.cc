#include "de_core/cc/kernels/files/chain_file.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "de_core/cc/kernels/files/env_stream.h"

namespace de::kernels {
namespace {

constexpr absl::string_view kFirstLine = "de_core chain 1\n";
constexpr uint64_t kMostBytes = uint64_t{1} << 20;

absl::Status NotAsWritten(const std::string& path, const std::string& why) {
  return absl::DataLossError(
      absl::StrCat(path, ": a chain file must consist of the line '", kFirstLine.substr(0, 15),
                   "', a line 'ID NAME' for each snapshot file, and 'end COUNT'. Received: ", why));
}

absl::Status ParseEntry(const std::string& path, absl::string_view line, ServedFile* file) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  engine::SnapshotId id;
  if (!engine::IdOf(std::string_view(parts.first.data(), parts.first.size()), &id) ||
      parts.second.empty() || absl::StrContains(parts.second, '/')) {
    return NotAsWritten(path, absl::StrCat("the line '", line, "'"));
  }
  const size_t slash = path.rfind('/');
  *file = {absl::StrCat(slash == std::string::npos ? "" : path.substr(0, slash + 1), parts.second),
           id};
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendServedFiles(tensorflow::Env* env, const std::string& path,
                               std::vector<ServedFile>* files) {
  std::unique_ptr<FileSource> source;
  TF_RETURN_IF_ERROR(FileSource::Open(env, path, &source));
  std::string text(std::min<uint64_t>(source->size(), kFirstLine.size()), '\0');
  TF_RETURN_IF_ERROR(InFile(path, source->Read(0, text.size(), text.data())));
  if (text != kFirstLine) {
    files->push_back({path, std::nullopt});
    return absl::OkStatus();
  }
  if (source->size() > kMostBytes) {
    return NotAsWritten(path, absl::StrCat(source->size(), " bytes"));
  }
  text.resize(source->size());
  TF_RETURN_IF_ERROR(InFile(path, source->Read(0, text.size(), text.data())));
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  int64_t count = -1;
  if (lines.size() < 4 || !lines.back().empty() || !absl::StartsWith(lines.end()[-2], "end ") ||
      !absl::SimpleAtoi(lines.end()[-2].substr(4), &count) ||
      count != static_cast<int64_t>(lines.size()) - 3) {
    return NotAsWritten(path, absl::StrCat(text.size(), " bytes that do not end with 'end COUNT'"));
  }
  for (size_t i = 1; i + 2 < lines.size(); ++i) {
    TF_RETURN_IF_ERROR(ParseEntry(path, lines[i], &files->emplace_back()));
  }
  return absl::OkStatus();
}

}  // namespace de::kernels
